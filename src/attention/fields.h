// The fields of a spec, and the tensors of a call, each listed once: what is recorded and read back, what a kernel is
// looked for by, and what other languages bind follows from here.
#pragma once

#include <string_view>

#include "base/fields.h"
#include "weft/attention.h"

namespace weft {

template <>
struct Fields<Bound> {
  static constexpr auto list =
      field_list(Field{"q_pos", &Bound::q_pos}, Field{"kv_len", &Bound::kv_len}, Field{"constant", &Bound::constant},
                 Field{"scalar", &Bound::scalar}, Field{"scalar_sign", &Bound::scalar_sign});
};

template <>
struct Fields<Interval> {
  static constexpr auto list = field_list(Field{"lower", &Interval::lower}, Field{"upper", &Interval::upper});
};

template <>
struct Fields<ScalarDecl> {
  static constexpr auto list = field_list(Field{"name", &ScalarDecl::name}, Field{"kind", &ScalarDecl::kind},
                                          Field{"default_value", &ScalarDecl::default_value});
};

template <>
struct Fields<TensorDecl> {
  static constexpr auto list = field_list(Field{"name", &TensorDecl::name}, Field{"dtype", &TensorDecl::dtype},
                                          Field{"rank", &TensorDecl::rank});
};

template <>
struct Fields<Variant> {
  static constexpr auto list =
      field_list(Field{"name", &Variant::name}, Field{"text", &Variant::text}, Field{"scalars", &Variant::scalars},
                 Field{"tensors", &Variant::tensors}, Field{"intervals", &Variant::intervals},
                 Field{"use_softmax", &Variant::use_softmax});
};

template <>
struct Fields<AttentionSpec> {
  static constexpr auto list =
      field_list(Field{"q_dtype", &AttentionSpec::q_dtype}, Field{"kv_dtype", &AttentionSpec::kv_dtype},
                 Field{"o_dtype", &AttentionSpec::o_dtype}, Field{"compute", &AttentionSpec::compute},
                 Field{"head_dim_qk", &AttentionSpec::head_dim_qk}, Field{"head_dim_vo", &AttentionSpec::head_dim_vo},
                 Field{"kv_form", &AttentionSpec::kv_form}, Field{"layout", &AttentionSpec::layout},
                 Field{"mask", &AttentionSpec::mask}, Field{"sliding_window", &AttentionSpec::sliding_window},
                 Field{"variant", &AttentionSpec::variant}, Field{"kv_scales", &AttentionSpec::kv_scales},
                 Field{"kv_scale_group", &AttentionSpec::kv_scale_group}, Field{"page_size", &AttentionSpec::page_size},
                 Field{"loader", &AttentionSpec::loader});
};

template <>
struct Fields<ScalarArg> {
  static constexpr auto list = field_list(Field{"name", &ScalarArg::name}, Field{"value", &ScalarArg::value});
};

enum class TensorUse { read, written };

// visit(name, view, use) for every tensor that each call may have; those that a variant declares are `tensors`.
template <class Tensors, class Visit>
void for_each_tensor(Tensors& call, Visit&& visit) {
  visit(std::string_view("q"), call.q, TensorUse::read);
  visit(std::string_view("k"), call.kv.k, TensorUse::read);
  visit(std::string_view("v"), call.kv.v, TensorUse::read);
  visit(std::string_view("k_scale"), call.kv.k_scale, TensorUse::read);
  visit(std::string_view("v_scale"), call.kv.v_scale, TensorUse::read);
  visit(std::string_view("o"), call.o, TensorUse::written);
  visit(std::string_view("lse"), call.lse, TensorUse::written);
}

}  // namespace weft
