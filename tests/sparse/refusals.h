// Calls that have to be refused.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "weft/error.h"

namespace weft::sparse::test {

// The message of the error that the call throws; "" where it throws none.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline void expect_contains(const std::string& message, const std::string& part, const std::string& what) {
  EXPECT_NE(message.find(part), std::string::npos) << what << "\nsays: " << message << "\nnot:  " << part;
}

}  // namespace weft::sparse::test
