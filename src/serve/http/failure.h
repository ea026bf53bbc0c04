// What went wrong with a request, as OpenAI's clients read it.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

#include "serve/limits_met.h"
#include "serve/request_checks.h"

namespace weft::serve::http {

struct Failure : std::runtime_error, OfLimit {
  Failure(int s, std::string c, const std::string& message, std::string field = {}, std::optional<Limit> which = {})
      : std::runtime_error(message), OfLimit{which}, status(s), code(std::move(c)), param(std::move(field)) {}
  int status;
  std::string code, param;
  std::string json() const;
  Failure with_field(const std::string& name) const;  // in its message, too, which begins with it
};

// What of a client's text fits into a message: whole characters, and "..." where some are left out.
std::string shortened(const std::string& text, size_t most = 100);

// Of weft::Error by its code, of anything else 500.
Failure failure_of(const std::exception_ptr& thrown);
Failure failure_of(const FieldError& error);
Failure failure_of_code(const std::string& code, const std::string& message);

}  // namespace weft::serve::http
