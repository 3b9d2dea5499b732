// A stream of a text that throws where memory ends. Streams keep such exceptions to themselves by default, and the text would
// end early: a pattern without its last lines, for as long as the process lives.
#pragma once

#include <sstream>
#include <string>

namespace ipex::passes {

inline std::istringstream reading(const std::string& text) {
  std::istringstream stream(text);
  stream.exceptions(std::ios::badbit);
  return stream;
}

}  // namespace ipex::passes
