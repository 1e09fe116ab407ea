// The tables of deploy/metrics.md, for tests that hold them against the programs'. Example:
//   EXPECT_EQ(DocumentedRows("Worker"), rows);
#pragma once

#include <fstream>
#include <string>
#include <vector>

namespace tp::testing {

// The rows of the table of series below "## SECTION".
inline std::vector<std::string> DocumentedRows(const std::string& section) {
  std::ifstream file(std::string(TP_SOURCE_DIR) + "/deploy/metrics.md");
  std::vector<std::string> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("## ", 0) == 0) inside = line == "## " + section;
    if (inside && line.rfind("| `", 0) == 0) rows.push_back(line);
  }
  return rows;
}

}  // namespace tp::testing
