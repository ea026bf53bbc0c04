#include "cli/plan_model.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "cli/output.h"
#include "decode/fused/schedule.h"
#include "weft/device.h"
#include "weft/model.h"

namespace weft::cli {

void write_svg(const std::string& path, const std::string& drawing) {
  std::ofstream out(path, std::ios::binary);
  out << drawing;
  out.flush();
  check(out.good(), ErrorCode::io_error, "--svg {}: cannot be written; check the folder and its permissions", path);
}

void plan_model(const PlanModelOptions& options, const Context& context) {
  using namespace decode;
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
