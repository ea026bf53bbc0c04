// The rows of a bench on stdout as they come: a table, or JSON lines {bench, case, metric, value, unit, ceiling,
// share}.
#pragma once

#include <string>

#include "bench/bench.h"

namespace weft::cli {

class PrintedReport : public bench::BenchReport {
 public:
  explicit PrintedReport(bool json) : json_(json) {}
  void add(const bench::BenchRow& row) override;
  int num_rows() const { return num_rows_; }
  void note(const std::string& line) override;
  void progress(const std::string& line) override;  // on stderr

 private:
  bool json_;
  int num_rows_ = 0;
  std::string last_bench_;
};

}  // namespace weft::cli
