// How messages name what a run is given, and say what it lacks: a caller of the library fills maps, a user of the
// program writes options.
#pragma once

#include <string>
#include <vector>

namespace weft::sparse {

// As the library says it.
class ArgumentNames {
 public:
  virtual ~ArgumentNames() = default;
  virtual std::string structure(const std::string& axis) const;
  virtual std::string scalar(const std::string& param) const;
  virtual std::string real(const std::string& param) const;
  virtual std::string buffer(const std::string& name) const;
  // Each throws. `axes` lists those that take a structure, `why` says more about the one that is missing.
  [[noreturn]] virtual void lacks_structure(const std::string& axis, const std::string& axes,
                                            const std::string& why) const;
  [[noreturn]] virtual void lacks_parameters(const std::vector<std::string>& params) const;
  [[noreturn]] virtual void lacks_reals(const std::vector<std::string>& params) const;
  static const ArgumentNames& of_library();
};

}  // namespace weft::sparse
