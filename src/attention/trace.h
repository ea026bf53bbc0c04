// WEFT_TRACE=FILE: when each work item and merge began and ended, one lane a worker, in the format that Perfetto and
// chrome://tracing read; of a card, when each launch did; and what others add. The file is whole after every run.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/abi.h"
#include "weft/tensor.h"

namespace weft::attention {

class Trace {
 public:
  // Null unless WEFT_TRACE is set. Throws Error(io_error) when the file cannot be written.
  static Trace* instance();
  explicit Trace(const std::string& path);

  // What one worker did in one run.
  class Lane {
   public:
    Lane(Trace* trace, const PlanHeader& plan, int worker) : trace_(trace), plan_(plan), worker_(worker) {}
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;
    void begin() {
      if (trace_) begin_ = now();
    }
    void end_item(int item) { end({begin_, 0, item, -1}); }
    void end_merge(int group) { end({begin_, 0, -1, group}); }

   private:
    friend class Trace;
    struct Span {
      int64_t begin, end;  // ns
      int item, group;     // the other is -1
    };
    static int64_t now();
    void end(Span span);

    Trace* trace_;
    const PlanHeader& plan_;
    int worker_;
    int64_t begin_ = 0;
    std::vector<Span> spans_;
  };

  // Of others than the workers above: a process and a lane of theirs, from kFirstProcess on.
  static constexpr int kFirstProcess = 3;
  struct Event {
    int process, lane;
    double begin_us, us;  // as now_us() counts
    std::string name, category;
  };
  double now_us() const { return static_cast<double>(Lane::now() - start_) * 1e-3; }
  void add(std::span<const Event> events) noexcept;

  // A launch on a card that has just ended and took so long by the card's clock.
  void add_launch(std::string_view kernel, Device device, const PlanHeader& plan, double seconds) noexcept;

 private:
  void write(const Lane& lane) noexcept;
  // Lines of events, each behind what separates it from the one before.
  void append(std::string lines);
  const char* separator() { return std::exchange(first_, false) ? "\n" : ",\n"; }

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::mutex mutex_;
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  int64_t start_ = 0;
  bool first_ = true, failed_ = false;
};

}  // namespace weft::attention
