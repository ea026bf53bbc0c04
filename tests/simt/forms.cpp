// All forms of products of warpgroups, and shapes of their attention, for the host to choose from.
#include "tests/simt/kernels/warpgroup_attend.h"
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

template <int i, bool gathers>
void run_shapes(int shape, const weft::WarpgroupAttendArgs& args) {
  if constexpr (i < weft::kNumAttendShapes) {
    if (shape != i) return run_shapes<i + 1, gathers>(shape, args);
    weft::WarpgroupAttend<i, gathers>(args).run();
  }
}

}  // namespace

extern "C" void weft_warpgroup_attend(int shape, weft::WarpgroupAttendArgs args) { run_shapes<0, false>(shape, args); }
extern "C" void weft_warpgroup_gather(int shape, weft::WarpgroupAttendArgs args) { run_shapes<0, true>(shape, args); }
extern "C" void weft_wgmma_form(int form, weft::WgmmaFormArgs args) { run_forms<0>(form, args); }
