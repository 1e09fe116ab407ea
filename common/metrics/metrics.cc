#include "common/metrics/metrics.h"

#include <prometheus/check_names.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"

namespace tp {
namespace {

// Of all combinations of the labels' values.
size_t CountOf(const MetricDeclaration& declaration) {
  size_t count = 1;
  for (const MetricLabel& label : declaration.labels) count *= label.values.size();
  return count;
}

prometheus::Labels LabelsOf(const MetricDeclaration& declaration, const std::vector<int>& values) {
  prometheus::Labels labels;
  for (size_t i = 0; i < values.size(); ++i) {
    labels[declaration.labels[i].name] = declaration.labels[i].values[static_cast<size_t>(values[i])];
  }
  return labels;
}

void CheckDeclaration(const MetricDeclaration& declaration) {
  TP_CHECK(prometheus::CheckMetricName(declaration.name));
  TP_CHECK(!declaration.help.empty());
  for (const MetricLabel& label : declaration.labels) {
    TP_CHECK(prometheus::CheckLabelName(label.name));
    TP_CHECK(!label.values.empty());
  }
  TP_CHECK(declaration.buckets.empty() == (declaration.type != MetricType::kHistogram));
  TP_CHECK(std::is_sorted(declaration.buckets.begin(), declaration.buckets.end()));
}

// A series of every combination.
template <typename Series>
void MakeAll(const MetricDeclaration& declaration, SeriesOf<Series>& series) {
  std::vector<int> values(declaration.labels.size(), 0);
  for (size_t i = 0; i < CountOf(declaration); ++i) {
    size_t rest = i;
    for (size_t l = 0; l < values.size(); ++l) {
      const size_t size = declaration.labels[l].values.size();
      values[l] = static_cast<int>(rest % size);
      rest /= size;
    }
    series.At(values);
  }
}

}  // namespace

std::vector<double> SecondsBuckets() {
  return {.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300};
}

std::vector<std::string> StatusCodeNames() {
  std::vector<std::string> names;
  for (int code = 0; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    names.push_back(absl::StatusCodeToString(static_cast<absl::StatusCode>(code)));
  }
  return names;
}

template <typename Series>
SeriesOf<Series>::SeriesOf(const MetricDeclaration& declaration, std::function<Series&(const std::vector<int>&)> make)
    : make_(std::move(make)), series_(CountOf(declaration)) {
  for (const MetricLabel& label : declaration.labels) sizes_.push_back(static_cast<int>(label.values.size()));
}

template <typename Series>
Series& SeriesOf<Series>::At(const std::vector<int>& values) {
  TP_CHECK(values.size() == sizes_.size());
  size_t index = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    TP_CHECK(values[i] >= 0 && values[i] < sizes_[i]);
    index = index * static_cast<size_t>(sizes_[i]) + static_cast<size_t>(values[i]);
  }
  Series* series = series_[index].load(std::memory_order_acquire);
  if (series == nullptr) {
    series = &make_(values);  // the same one for equal labels
    series_[index].store(series, std::memory_order_release);
  }
  return *series;
}

template class SeriesOf<prometheus::Counter>;
template class SeriesOf<prometheus::Gauge>;
template class SeriesOf<prometheus::Histogram>;

struct Metrics::Families {
  prometheus::Registry registry;
  std::map<std::string, std::unique_ptr<SeriesOf<prometheus::Counter>>> counters;
  std::map<std::string, std::unique_ptr<SeriesOf<prometheus::Gauge>>> gauges;
  std::map<std::string, std::unique_ptr<SeriesOf<prometheus::Histogram>>> histograms;
};

Metrics::Metrics(MetricTable table) : table_(std::move(table)), families_(std::make_unique<Families>()) {
  std::set<std::string> names;
  for (const MetricDeclaration& declaration : table_) {
    CheckDeclaration(declaration);
    TP_CHECK(names.insert(declaration.name).second);
    const auto add = [&](auto builder, auto& families, auto&&... arguments) {
      using Series = typename std::decay_t<decltype(*families.begin()->second)>;
      auto& family = builder.Name(declaration.name).Help(declaration.help).Register(families_->registry);
      auto series = std::make_unique<Series>(
          declaration, [&declaration, &family, arguments... ](const std::vector<int>& values) -> auto& {
            return family.Add(LabelsOf(declaration, values), arguments...);
          });
      if (!declaration.sparse) MakeAll(declaration, *series);
      families[declaration.name] = std::move(series);
    };
    switch (declaration.type) {
      case MetricType::kCounter:
        add(prometheus::BuildCounter(), families_->counters);
        break;
      case MetricType::kGauge:
        add(prometheus::BuildGauge(), families_->gauges);
        break;
      case MetricType::kHistogram:
        add(prometheus::BuildHistogram(), families_->histograms, declaration.buckets);
        break;
    }
  }
}

Metrics::~Metrics() = default;

namespace {
template <typename Map>
auto& Find(Map& families, const std::string& name) {
  const auto it = families.find(name);
  TP_CHECK(it != families.end());
  return *it->second;
}
}  // namespace

SeriesOf<prometheus::Counter>& Metrics::counters(const std::string& name) { return Find(families_->counters, name); }
SeriesOf<prometheus::Gauge>& Metrics::gauges(const std::string& name) { return Find(families_->gauges, name); }
SeriesOf<prometheus::Histogram>& Metrics::histograms(const std::string& name) {
  return Find(families_->histograms, name);
}

void Metrics::OnScrape(std::function<void()> refresh) {
  const absl::MutexLock lock(&scrape_);
  refresh_.push_back(std::move(refresh));
}

std::string Metrics::Text() {
  const absl::MutexLock lock(&scrape_);
  for (const auto& refresh : refresh_) refresh();
  return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

std::vector<std::string> MarkdownRows(const MetricTable& table) {
  std::vector<std::string> rows;
  for (const MetricDeclaration& declaration : table) {
    std::vector<std::string> labels;
    for (const MetricLabel& label : declaration.labels) labels.push_back(absl::StrCat("`", label.name, "`"));
    rows.push_back(absl::StrCat("| `", declaration.name, "` | ",
                                declaration.type == MetricType::kCounter ? "counter"
                                : declaration.type == MetricType::kGauge ? "gauge"
                                                                         : "histogram",
                                " | ", absl::StrJoin(labels, ", "), " | ", declaration.help, " |"));
  }
  return rows;
}

}  // namespace tp
