// The series about the process itself, by the names that Prometheus's clients share. Example:
//   MetricTable table = ProcessTable();  ...  Metrics metrics(table);   WatchProcess(&metrics, "0.1.0");
#pragma once

#include <string>

#include "common/metrics/metrics.h"

namespace tp {

// process_* and tp_build_info, to be part of a program's table.
MetricTable ProcessTable(const std::string& version);
// Reads /proc/self at each scrape. `metrics` has ProcessTable's series.
void WatchProcess(Metrics* metrics);

}  // namespace tp
