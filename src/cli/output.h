// The program's standard streams.
//
//   print_out("{} items\n", count);   // a result: to stdout, or Error(io_error)
#pragma once

#include <fmt/format.h>

#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

namespace weft::cli {

// Takes the descriptors 0 to 2 that are closed, so that no file opened later gets them: what is read from them or
// written to them fails. A reader of stdout that goes away makes writing fail, too, and ends no process. First of all.
void secure_standard_streams();

// A result. Throws Error(io_error) where stdout is closed, full or read by nobody; what was not flushed may fail later.
void write_out(std::string_view text);
void flush_out();
// A line at once, beside write_out. Waits for a reader of a pipe that is full, until `end` is asked for, and throws
// then, too.
void write_line(std::string_view line, const std::stop_token& end);
template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  write_out(fmt::format(format, std::forward<Args>(args)...));
}

// A drawing, whole or not at all, into the file of --svg. Throws Error(io_error), naming it.
void write_svg(const std::string& path, std::string_view drawing);

// "standard output is closed", or what else `error`, an errno, says.
std::string stream_failure(std::string_view stream, int error);

}  // namespace weft::cli
