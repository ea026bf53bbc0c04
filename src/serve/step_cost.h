// What a step costs, learnt from those that ran: seconds = a + b * rows + c * (keys that the rows read), and how far
// steps go beyond that.
#pragma once

#include <array>
#include <cstdint>

namespace weft::serve {

class StepCost {
 public:
  struct Work {
    int64_t rows = 0, pieces = 0;
    double keys = 0;                           // summed over rows: how many tokens each of them sees
    void add(int64_t count, int64_t before) {  // `count` tokens after `before` others
      rows += count;
      ++pieces;
      keys += static_cast<double>(count) * (static_cast<double>(before) + 0.5 * static_cast<double>(count));
    }
    bool mixes() const { return pieces > 1 && rows > pieces; }  // prompts, and others beside them
  };

  StepCost();
  // Recursive least squares in relative error; steps of long ago fade.
  void learn(const Work& work, double seconds);
  double seconds(const Work& work) const;
  // How many tokens after `before` fit beside `work`, at most `most`, so that nearly all steps end within `target`
  // seconds.
  int64_t rows_that_fit(const Work& work, int64_t before, double target, int64_t most) const;

 private:
  using Vector = std::array<double, 3>;
  static Vector features(const Work& work);
  double doubt(const Vector& x) const;
  Vector weights_;
  std::array<Vector, 3> covariance_;
  Vector last_prompt_{};    // features by seconds, of the last step with prompts
  double overshoot_ = 1.1;  // times what is said: most steps that mix take no longer
};

}  // namespace weft::serve
