// All forms of products of warpgroups, for the host to choose from.
#include "tests/simt/kernels/wgmma_forms.h"

namespace {

template <int i>
void run_forms(int form, const weft::WgmmaFormArgs& args) {
  if constexpr (i < weft::kWgmmaForms) {
    if (form != i) return run_forms<i + 1>(form, args);
    if constexpr (weft::forms::kAll[i].bf16)
      weft::run_form<weft::bf16, i>(args);
    else
      weft::run_form<weft::fp16, i>(args);
  }
}

}  // namespace

extern "C" void weft_wgmma_form(int form, weft::WgmmaFormArgs args) { run_forms<0>(form, args); }
