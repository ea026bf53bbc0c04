// The fields of structs that only Python makes from keywords (attention/fields.h has those of a spec).
#pragma once

#include "attention/fields.h"
#include "base/fields.h"
#include "objects.h"
#include "weft/ops.h"
#include "weft/plan.h"

namespace weft {

template <>
struct Fields<PlanBounds> {
  static constexpr auto list = field_list(
      Field{"max_requests", &PlanBounds::max_requests}, Field{"max_rows", &PlanBounds::max_rows},
      Field{"max_qo_len", &PlanBounds::max_qo_len}, Field{"max_pages", &PlanBounds::max_pages},
      Field{"max_levels", &PlanBounds::max_levels}, Field{"max_kv_len", &PlanBounds::max_kv_len},
      Field{"page_size", &PlanBounds::page_size}, Field{"num_qo_heads", &PlanBounds::num_qo_heads},
      Field{"num_kv_heads", &PlanBounds::num_kv_heads}, Field{"workers", &PlanBounds::workers},
      Field{"mode", &PlanBounds::mode}, Field{"fixed_split_size", &PlanBounds::fixed_split_size},
      Field{"block_rows", &PlanBounds::block_rows}, Field{"positions_per_block", &PlanBounds::positions_per_block},
      Field{"max_bits_bytes", &PlanBounds::max_bits_bytes});
};

template <>
struct Fields<python::PyLevel> {
  static constexpr auto list =
      field_list(Field{"qo_indptr", &python::PyLevel::qo_indptr}, Field{"pages", &python::PyLevel::pages});
};

template <>
struct Fields<python::PyPlanInput> {
  using Input = python::PyPlanInput;
  static constexpr auto list = field_list(
      Field{"num_qo_heads", &Input::num_qo_heads}, Field{"num_kv_heads", &Input::num_kv_heads},
      Field{"qo_indptr", &Input::qo_indptr}, Field{"pages", &Input::pages}, Field{"blocks", &Input::blocks},
      Field{"kv_indptr", &Input::kv_indptr}, Field{"kv_len", &Input::kv_len}, Field{"max_kv_len", &Input::max_kv_len},
      Field{"num_workers", &Input::num_workers}, Field{"mode", &Input::mode},
      Field{"fixed_split_size", &Input::fixed_split_size}, Field{"levels", &Input::levels},
      Field{"request_order", &Input::request_order}, Field{"mask_indptr", &Input::mask_indptr},
      Field{"scalars", &Input::scalars}, Field{"bounds", &Input::bounds}, Field{"spare_pages", &Input::spare_pages},
      Field{"borrow_page_ids", &Input::borrow_page_ids});
};

template <>
struct Fields<RopeParams> {
  static constexpr auto list = field_list(
      Field{"pairs", &RopeParams::pairs}, Field{"rotary_dim", &RopeParams::rotary_dim},
      Field{"theta", &RopeParams::theta}, Field{"linear_scale", &RopeParams::linear_scale},
      Field{"scaling", &RopeParams::scaling}, Field{"factor", &RopeParams::factor},
      Field{"original_context", &RopeParams::original_context}, Field{"low_freq_factor", &RopeParams::low_freq_factor},
      Field{"high_freq_factor", &RopeParams::high_freq_factor}, Field{"beta_fast", &RopeParams::beta_fast},
      Field{"beta_slow", &RopeParams::beta_slow}, Field{"attention_factor", &RopeParams::attention_factor},
      Field{"divisors", &RopeParams::divisors});
};

template <>
struct Fields<Penalties> {
  static constexpr auto list =
      field_list(Field{"repetition", &Penalties::repetition}, Field{"presence", &Penalties::presence},
                 Field{"frequency", &Penalties::frequency});
};

template <>
struct Fields<SamplingParams> {
  static constexpr auto list =
      field_list(Field{"temperature", &SamplingParams::temperature}, Field{"top_k", &SamplingParams::top_k},
                 Field{"top_p", &SamplingParams::top_p}, Field{"min_p", &SamplingParams::min_p},
                 Field{"filter_order", &SamplingParams::filter_order});
};

}  // namespace weft
