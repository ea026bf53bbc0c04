// The reference, observed: the terms of each row and head as it is attended.
#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/reference/error_model/error_model.h"
#include "attention/reference/error_model/terms.h"

namespace weft {
namespace {

using namespace reference;

class Measure : public Observer {
 public:
  Measure(const AttentionSpec& spec, const PlanInput& in, const AttentionTensors& tensors,
          const attention::Rounding& rounding, const ReferenceScope& scope)
      : spec_(spec),
        tensors_(tensors),
        hooks_(hooks(spec, in, tensors, scope)),
        transforms_(transforms(spec, in, tensors, hooks_, rounding)),
        call_{hooks_, transforms_, rounding,
              tensors.sm_scale ? static_cast<double>(*tensors.sm_scale) : 1 / std::sqrt(spec.head_dim_qk)},
        heads_(in.num_qo_heads) {}

  void keys(const Keys& list, int kv_head, const KvHead&) override {
    kv_errors_ = {};
    for (size_t t = 0; t < list.tokens.size(); ++t) {
      const reference::Token& token = list.tokens[t];
      const abi::VectorRow row{list.request, static_cast<int>(t), token.position, kv_head};
      const auto error = [&](const VectorHook& exact, const VectorHook& rounded, auto vector) -> VectorError {
        return rounded ? error_of(exact, rounded, row, vector(spec_, tensors_.kv, token, kv_head)) : VectorError{};
      };
      kv_errors_.keys.push_back(error(hooks_.key, transforms_.key, key_vector));
      kv_errors_.values.push_back(error(hooks_.value, transforms_.value, value_vector));
      if (integers() || call_.rounding.least_units > 0)
        kv_errors_.value_scales.push_back(scale_of(spec_, tensors_.kv.v_scale, token, kv_head));
    }
  }

  void row(const AttendedRow& row) override {
    const Place& place = row.place;
    const VectorError q_error =
        error_of(hooks_.query, transforms_.query, place.row, vector_at(tensors_.q, place.q_row, place.head));
    Terms terms = terms_of(call_, row, q_error, kv_errors_);
    pass_output(call_, row, terms);
    pass_lse(call_, row, terms);
    keep(place, terms);
  }

  MeasuredReference result(ReferenceResult reference) && {
    const size_t elements = reference.o.size(), states = reference.lse.size();
    MeasuredReference all = std::move(measured_);
    static_cast<ReferenceResult&>(all) = std::move(reference);
    all.scale.resize(elements);  // of rows out of scope, too
    all.moved.resize(elements);
    all.moved_lse.resize(states);
    all.coarse.resize(integers() ? elements : 0);
    all.coarse_lse.resize(integers() ? states : 0);
    return all;
  }

 private:
  bool integers() const { return call_.rounding.query_steps > 0; }

  void keep(const Place& place, const Terms& terms) {
    const auto state = static_cast<size_t>(place.q_row * heads_ + place.head);
    const auto put = [](const double* from, size_t n, size_t begin, Vector& to) {
      if (to.size() < begin + n) to.resize(begin + n);
      std::copy(from, from + n, to.begin() + static_cast<std::ptrdiff_t>(begin));
    };
    const auto dim = static_cast<size_t>(spec_.head_dim_vo);
    put(terms.scale.data(), dim, state * dim, measured_.scale);
    put(terms.moved.data(), dim, state * dim, measured_.moved);
    put(terms.coarse.data(), dim, state * dim, measured_.coarse);
    put(&terms.moved_lse, 1, state, measured_.moved_lse);
    put(&terms.coarse_lse, 1, state, measured_.coarse_lse);
  }

  const AttentionSpec& spec_;
  const AttentionTensors& tensors_;
  const Hooks hooks_;
  const Transforms transforms_;
  const ErrorContext call_;
  const int64_t heads_;
  KvErrors kv_errors_;
  MeasuredReference measured_;
};

}  // namespace

MeasuredReference measured_reference(const AttentionSpec& spec, const PlanInput& in, const AttentionTensors& tensors,
                                     const attention::Rounding& rounding, const ReferenceScope& scope) {
  Measure measure(spec, in, tensors, rounding, scope);
  ReferenceResult reference = attention_reference(spec, in, tensors, scope, &measure);
  return std::move(measure).result(std::move(reference));
}

}  // namespace weft
