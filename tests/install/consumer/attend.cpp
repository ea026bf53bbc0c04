#include <weft/attention.h>

#include <cstdio>
#include <vector>

int main() {
  using namespace weft;
  const AttentionSpec spec{.head_dim_qk = 64, .head_dim_vo = 64, .kv_form = KvForm::ragged, .mask = Mask::causal};
  std::vector<float> q(4 * 2 * 64, 0.1f), k = q, v = q, o = q;  // 4 tokens, 2 heads of 64
  auto view = [](std::vector<float>& x) { return TensorView(x.data(), DType::fp32, {4, 2, 64}); };
  attend(spec, view(q), view(k), view(v), view(o));
  std::printf("%.3f\n", o[0]);  // 0.100: the mean of equal values
}
