// A whole attention problem for tests: tensors of every form, layout and type, with NaN wherever a kernel must not
// look and outputs that show what was written.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/reference/error_model/error_model.h"
#include "tests/attention/kernels/target.h"
#include "weft/attention.h"

namespace weft::testing {

struct Case {
  DType q_dtype = DType::fp32, kv_dtype = DType::fp32, o_dtype = DType::fp32;
  KvScales kv_scales = KvScales::none;
  int kv_scale_group = 0;
  KvForm form = KvForm::paged;
  Layout layout = Layout::nhd;
  int page_size = 16;
  int group = 1, kv_heads = 1;
  int head_dim_qk = 64, head_dim_vo = 64;
  Mask mask = Mask::none;
  int window = -2;  // -2: no sliding window in the spec
  int sinks = 0;    // > 0: the first keys and the last 11, as two intervals
  Variant variant = {};
  std::vector<std::pair<int, int>> lengths = {};  // (qo_len, kv_len) of each request
  bool strided = false;                           // gaps between tokens, heads and rows
  bool five_d = false;                            // paged, latent: one tensor for all
  double query_scale = 1;
  std::vector<ScalarArg> scalars = {};  // of the variant
  std::vector<TensorArg> tensors = {};
  unsigned seed = 1;
};
std::string to_string(const Case& c);

// What the kernels of a target round that multiply in this type.
attention::Rounding rounding(const AttentionSpec& spec, DType compute, const Target& target = *targets().front());
// The reference, measured for whatever kernels of the spec multiply in.
MeasuredReference measured_reference(const AttentionSpec& spec, const PlanInput& input,
                                     const AttentionTensors& tensors);

// Numbers to and from the bits of an element type.
void put(void* to, DType dtype, int64_t index, double value);
double get(const void* from, DType dtype, int64_t index);

class Problem {
 public:
  explicit Problem(const Case& c);

  AttentionSpec spec() const { return spec_; }
  PlanInput input(int workers, PlanMode mode = PlanMode::balanced, int split = 0) const;
  AttentionTensors tensors();
  // Everything that a kernel may write becomes NaN.
  void poison_outputs();
  // One line for each thing that is wrong; empty when all is right.
  std::string compare(DType compute, const Target& target = *targets().front()) const;
  std::string outputs() const { return std::string(o_.begin(), o_.end()) + std::string(lse_bytes(), lse_bytes_size()); }
  const MeasuredReference& reference();

  // By the declared intervals.
  bool sees(size_t request, int query, int token) const;
  // No row sees it.
  bool hidden(size_t request, int token) const;
  // Puts a number, of narrow types a code, into an element of a token's key or value, of every head.
  void put_key(size_t request, int token, double value, int element = 0);
  void put_value(size_t request, int token, double value, int element = 0);
  void put_value_scale(size_t request, int token, double value);
  // What the cache holds, as bytes, and back.
  std::vector<char> cache_bytes() const;
  void put_cache_bytes(const std::vector<char>& bytes);

 private:
  // The token's place in a tensor of the cache: its page or request, and the index there.
  std::pair<TensorView, int64_t> place_of(const TensorView& tensor, size_t request, int token) const;
  void put_element(const TensorView& tensor, size_t request, int token, double value, int element);
  const char* lse_bytes() const { return reinterpret_cast<const char*>(lse_.data()); }
  size_t lse_bytes_size() const { return lse_.size() * sizeof(float); }
  void make_pages();
  void make_cache();
  void fill_token(TensorView side, TensorView scale, size_t request, int t);
  void make_masks();
  int64_t tokens_of_axis() const;

  Case case_;
  AttentionSpec spec_;
  std::mt19937 random_;
  std::vector<int32_t> qo_indptr_{0}, kv_indptr_{0}, kv_len_, page_indptr_{0}, page_indices_, last_page_len_;
  int64_t num_pages_ = 0;
  int max_kv_len_ = 0;
  std::vector<char> q_, k_, v_, o_;
  std::vector<float> lse_;
  std::vector<uint8_t> mask_, packed_mask_;
  std::vector<int64_t> mask_indptr_{0}, packed_mask_indptr_;
  TensorView q_view_, o_view_, lse_view_;
  std::vector<char> k_scale_, v_scale_;
  KvCache cache_;
  MeasuredReference reference_;
  bool has_reference_ = false;
};

// Combinations of factor levels such that every two levels of two factors meet at least once.
std::vector<std::vector<int>> pairwise(const std::vector<int>& levels, unsigned seed);

}  // namespace weft::testing
