#include "cli/bench_report.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/cli.h"
#include "cli/output.h"

namespace weft::cli {
namespace {

// Four digits that matter, no exponent.
std::string number(double value) {
  const double size = value < 0 ? -value : value;
  if (size == 0) return "0";
  if (size < 1e-3) return fmt::format("{:.3g}", value);
  const int decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : 4;
  return fmt::format("{:.{}f}", value, decimals);
}

void print_line(const nlohmann::json& json) {
  print_out("{}\n", json.dump());
  flush_out();
}

}  // namespace

void PrintedReport::note(const std::string& line) {
  stop_if_interrupted();
  if (json_) {
    print_line({{"note", line}});
  } else {
    print_out("# {}\n", line);
    flush_out();
  }
}

void PrintedReport::progress(const std::string& line) {
  stop_if_interrupted();
  std::fputs(fmt::format("weft: {}\n", line).c_str(), stderr);
}

void PrintedReport::add(const bench::BenchRow& row) {
  stop_if_interrupted();
  ++num_rows_;
  const bool has_ceiling = row.ceiling > 0;
  if (json_) {
    nlohmann::json line = {{"bench", row.bench}, {"case", row.name},   {"metric", row.metric}, {"value", row.value},
                           {"unit", row.unit},   {"ceiling", nullptr}, {"share", nullptr}};
    if (has_ceiling) {
      line["ceiling"] = row.ceiling;
      line["share"] = row.share();
    }
    print_line(line);
    return;
  }
  constexpr const char* kColumns = "{:<52} {:<18} {:>10} {:<8} {:>10} {:>7}\n";
  if (row.bench != last_bench_) {
    last_bench_ = row.bench;
    print_out(fmt::runtime(kColumns), row.bench, "metric", "value", "unit", "ceiling", "share");
  }
  print_out(fmt::runtime(kColumns), row.name, row.metric, number(row.value), row.unit,
            has_ceiling ? number(row.ceiling) : "", has_ceiling ? fmt::format("{:.3f}", row.share()) : "");
  flush_out();
}

}  // namespace weft::cli
