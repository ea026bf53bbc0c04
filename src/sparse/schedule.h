// Runs the lines of a schedule. A name of an iteration stands for all iterations that decompose_format made of it.
//
//   ScheduleRunner runner(schedule);
//   runner.run_stage1(program);      // up to lower()
//   runner.run_stage2(stage2);       // what follows
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sparse/stage1/parse.h"
#include "sparse/stage1/primitives.h"
#include "sparse/stage2/stage2.h"

namespace weft::sparse {

// A matrix that is stored in other formats: whose structure they are made of.
struct Decomposition {
  std::string row_axis, col_axis;
  std::string buffer;
  Formats formats;
  std::vector<FormatRewriteRule> rules;
};

class ScheduleRunner {
 public:
  explicit ScheduleRunner(Schedule schedule, std::vector<FormatDefinition> formats = {})
      : schedule_(std::move(schedule)), formats_(std::move(formats)) {}
  void run_stage1(Stage1& program);
  void run_stage2(Stage2& stage);
  bool has_stage2_lines() const;
  // Axes of one position whose loops the lines after lower() name, as a schedule does that is written for any number of
  // features: lowering makes loops of them. Of a name that stands for several iterations, only where none has a loop.
  Names named_axes_of_one(const Stage1& program) const;
  const std::vector<Decomposition>& decompositions() const { return decompositions_; }

 private:
  void run_line(const ScheduleLine& line, Stage1& program);
  void run_line(const ScheduleLine& line, Stage2& stage);
  bool run_loops_line(const ScheduleLine& line, Stage2& stage);
  bool run_blocks_line(const ScheduleLine& line, Stage2& stage);
  // Names a loop of the same block.
  void define(const std::string& result, const std::string& loop);
  void decompose(const ScheduleLine& line, Stage1& program);
  // "csrmm.k" for each block that has loops of all those names.
  std::vector<std::vector<std::string>> loops_of(const Stage2& stage, const std::vector<std::string>& names,
                                                 bool with_beside) const;
  std::string resolved(const std::string& name) const;
  // What the name of an iteration stands for from now on, and where another name stands for it, too, that one.
  void add_group(const std::string& iteration, const std::vector<std::string>& blocks, const Stage1& program);

  struct Group {
    std::vector<std::string> blocks = {};
    std::vector<std::string> beside = {};  // companion blocks: NAME_init runs before, NAME_gather after
  };
  Schedule schedule_;
  std::vector<FormatDefinition> formats_;  // of the program's text
  std::vector<Decomposition> decompositions_;
  std::map<std::string, Group> groups_;
  std::map<std::string, std::string> results_;  // what a line calls a loop -> "csrmm.ko"
};

// A primitive that leaves loops behind that break a rule of stage II is refused with these words, though it should have
// refused the line itself, by a reason of its own: each of them is a mistake of the compiler.
inline constexpr std::string_view kBreaksRules = "it cannot be carried out on these loops";

// What runs without any line for stage II: the outermost spatial loop of each nest is shared by the team.
void default_schedule(Stage2& stage);

}  // namespace weft::sparse
