// Families of calls of the public API. Each call of a family is right or is refused with weft::Error; a family keeps
// what is dear to make.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "dice.h"

namespace weft::testing {

class CallFamily {
 public:
  virtual ~CallFamily() = default;
  virtual const char* name() const = 0;
  virtual void call(Dice& dice) = 0;
  // What its messages name: at least one of these.
  virtual std::vector<std::string_view> arguments() const = 0;
};
using CallFamilies = std::vector<std::unique_ptr<CallFamily>>;

void add_attention_calls(CallFamilies& families);  // build, plan, run, merge_states, page table
void add_operator_calls(CallFamilies& families);   // tensors, workspaces, append, RoPE, norms, sampling, kernel cache
void add_model_calls(CallFamilies& families);      // files, tokenizers, chat templates, forward passes

}  // namespace weft::testing
