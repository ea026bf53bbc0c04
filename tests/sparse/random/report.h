// What tests of random cases say: how much was accepted, what is known, the smallest case of what is wrong.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <iostream>

#include "tests/sparse/random/case.h"

namespace weft::sparse::random {

// A line every half minute: how far a long run is.
class Progress {
 public:
  explicit Progress(size_t num_cases) : num_cases_(num_cases) {}
  void show(size_t done) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::seconds(30)) return;
    last_ = now;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - begin_).count();
    std::cout << done << " of " << num_cases_ << " cases, " << seconds << " s" << std::endl;
  }

 private:
  using Time = std::chrono::steady_clock::time_point;
  const size_t num_cases_;
  const Time begin_ = std::chrono::steady_clock::now();
  Time last_ = begin_;
};

// Of a long run: no primitive is always refused, and a fair share of all lines is accepted.
inline void expect_all_accepted(const Tally& tally) {
  if (tally.num_cases < 900) return;
  EXPECT_GE(tally.all().accepted * 100, tally.all().drawn * 40);
  for (const std::string& primitive : LineMaker::primitives()) {
    const auto found = tally.primitives.find(primitive);
    EXPECT_GE(found == tally.primitives.end() ? 0 : found->second.cases, 1) << "cases with " << primitive;
  }
  EXPECT_GE(tally.num_dividing, 1) << "cases that divide by 0";
  EXPECT_GE(tally.num_missing, 1) << "cases that write where nothing is stored";
}

class Findings {
 public:
  // `check` finds the problem again, in so many tries for smaller cases.
  void add(size_t number, const Case& c, const Problem& problem, const Check& check, int tries) {
    Case small = shrunk(c, check, tries);
    Problem left = check(small);
    if (!left) small = c, left = problem;
    ADD_FAILURE() << report(small, left) << testing::only_case(number);
    ++num_failures_;
  }
  bool are_enough() const { return num_failures_ >= testing::most_failures(); }

 private:
  size_t num_failures_ = 0;
};

// Cases with accepted schedules, so many in one text, until `run` wants no more; whatever is wrong while they are made,
// is another test's.
template <class Run>
void run_in_files(const std::vector<uint64_t>& seeds, size_t of_a_file, Tally& tally, const Run& run) {
  Progress progress(seeds.size());
  std::vector<Case> cases;
  std::vector<size_t> numbers;
  for (size_t i = 0, more = true; i < seeds.size() && more; ++i) {
    Random random(seeds[i]);
    MadeCase made = make_case(random, tally, "p" + std::to_string(cases.size()));
    if (!made.problem) {
      cases.push_back(std::move(made.c));
      numbers.push_back(i);
    }
    if (cases.size() < of_a_file && (i + 1 < seeds.size() || cases.empty())) continue;
    more = run(cases, numbers);
    progress.show(i + 1);
    cases.clear();
    numbers.clear();
  }
}

// Cases as code for cards, so many in one text: `run` gives a problem for each, "refused" where there is none for them;
// `check` finds the problem of one again. A lost card runs no more.
template <class Run>
void expect_right_on_cards(size_t of_a_file, const Run& run, const Check& check) {
  Tally tally;
  Findings findings;
  size_t refused = 0;
  bool is_lost = false;
  run_in_files(testing::case_seeds(100), of_a_file, tally,
               [&](const std::vector<Case>& cases, const std::vector<size_t>& numbers) {
                 const std::vector<Problem> problems = run(cases);
                 for (size_t i = 0; i < cases.size(); ++i) {
                   if (problems[i].kind == "refused") {
                     ++refused;
                     continue;
                   }
                   tally.add_case(cases[i]);
                   is_lost |= problems[i].kind == "lost card";  // there is no smaller case then
                   if (problems[i]) findings.add(numbers[i], cases[i], problems[i], check, is_lost ? 0 : 40);
                 }
                 return !is_lost && !findings.are_enough();
               });
  std::cout << tally.text();
  std::cout << refused << " cases have no code for cards\n";
  if (static_cast<int64_t>(refused) + tally.num_cases >= 20) {
    EXPECT_LE(static_cast<int64_t>(refused) * 2, tally.num_cases) << "cases that cards refuse";
  }
  if (!is_lost && !findings.are_enough()) expect_all_accepted(tally);
}

}  // namespace weft::sparse::random
