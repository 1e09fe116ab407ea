// Rows that are alike but for a number in their path, as one. Example: layers.0.fc, layers.1.fc and layers.2.fc with
// equal texts are the group "layers.{0-2}.fc" of 3. Pure.
#pragma once

#include <string>
#include <vector>

namespace tp::client {

struct PathRow {
  std::string path;
  std::string text;  // all else that makes a row what it is
};
struct PathGroup {
  std::string path;       // as "layers.{0-2,5}.fc"
  std::string name = {};  // its last part
  int depth = 0;          // parts of the path
  size_t first = 0;       // index of its first row
  int count = 1;          // rows in it
};

// In the order of the first rows.
std::vector<PathGroup> GroupRows(const std::vector<PathRow>& rows);
// Rows are a tree with parents before children; those under one parent become one with all that lies below, where all
// of that is alike. In preorder.
std::vector<PathGroup> GroupTrees(const std::vector<PathRow>& rows);

}  // namespace tp::client
