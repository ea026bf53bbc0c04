#include "cli/plan_model.h"

#include <bit>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "cli/output.h"
#include "decode/fused/cuda/check_fused.h"
#include "decode/fused/cuda/model_kernel.h"
#include "decode/fused/cuda/model_text.h"
#include "decode/fused/schedule.h"
#include "weft/device.h"
#include "weft/model.h"

namespace weft::cli {

namespace {

constexpr int kMultiprocessors = 132;  // of an H100

void print_cuda(const PlanModelOptions& options, const Context& context) {
  using namespace decode;
  const ModelFile file(options.model);
  const decode::Program program = make_program(file.config());
  const int workers = options.num_workers > 0 ? options.num_workers : kMultiprocessors;
  fused::check_shape(file.config(), program);
  const fused::Partition partition = fused::make_partition(program, fused::form_of(program, read_sources(file)),
                                                           fused::card_machine(workers, program));
  fused::check_weights(partition);
  const int most = static_cast<int>(std::bit_ceil(static_cast<unsigned>(options.rows)));
  const cuda::KernelText text = fused::model_text(partition, fused::shape_of(partition, most, DType::bf16));
  if (context.json)
    return print_json({{"name", text.name},
                       {"symbol", text.symbol},
                       {"workers", workers},
                       {"threads", text.threads},
                       {"shared_bytes", text.shared_bytes},
                       {"includes", text.file},
                       {"text", text.instances}});
  print_out("// {}, for {} CTAs of {} threads, {} bytes of shared memory each\n#include \"{}\"\n\n{}", text.name,
            workers, text.threads, text.shared_bytes, text.file, text.instances);
}

}  // namespace

void plan_model(const PlanModelOptions& options, const Context& context) {
  using namespace decode;
  if (!options.print.empty()) return print_cuda(options, context);
  const ModelFile file(options.model);
  const decode::Program program = make_program(file.config());
  const fused::ModelForm form = fused::form_of(program, read_sources(file));
  const int workers = options.num_workers > 0 ? options.num_workers : WorkerTeam::shared().num_workers();
  fused::Partition partition;
  const double seconds = seconds_of([&] { partition = fused::make_partition(program, form, {.workers = workers}); });
  if (!options.svg.empty()) write_svg(options.svg, fused::to_svg(partition));
  int64_t bytes = 0;
  for (const fused::Phase& phase : partition.phases.all)
    if (phase.multiplies()) bytes += partition.matrix_of(phase).tiles.bytes;
  if (context.json)
    return print_json({{"workers", workers},
                       {"phases", partition.phases.size()},
                       {"joins", partition.phases.size() - 1},
                       {"period", partition.period},
                       {"weight_bytes", bytes},
                       {"plan_us", seconds * 1e6}});
  print_out("{}\n{}\n{} bytes of weights a token, planned in {:.1f} us\n", fused::to_string(partition.phases, program),
            fused::to_string(partition), bytes, seconds * 1e6);
}

}  // namespace weft::cli
