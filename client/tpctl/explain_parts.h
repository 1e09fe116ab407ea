// What the files of explain_render.h share: JSON leaves, texts of numbers and the tables. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "client/tpctl/explain_render.h"

namespace tp::client {

JsonNode TextNode(std::string_view text);
JsonNode NumberNode(int64_t number);
JsonNode NumberNode(double number);  // whole ones as integers

std::string SecondsText(double seconds);  // "3.22 ms"
std::string FlopsText(double flops);      // "24.1 M"
std::string ModuleText(const std::string& path);
// Of a module with all below it.
Cost CostOfModule(const Explanation& explanation, const std::string& path);

struct OpTotal {
  int64_t count = 0, bytes = 0;
};
std::map<std::string, OpTotal> TotalsByOp(const std::vector<CollectiveCost>& collectives);
JsonNode OpJson(const OpTotal& total);
int64_t CollectiveBytes(const std::vector<CollectiveCost>& collectives);

// Rows that are alike but for a number in their path are one.
std::string ModulesTable(const Explanation& explanation);
std::string StatesTable(const CompiledModel& compiled);
std::string CollectivesTable(const std::vector<CollectiveCost>& collectives);
std::string RanksTable(const std::vector<RankMemory>& memory);

}  // namespace tp::client
