// A plan's way into a workspace.
#include "attention/backend.h"
#include "attention/plan/plan_builder.h"
#include "base/check.h"
#include "base/device_checks.h"

namespace weft {

using namespace attention;
using namespace planner;

void Plan::upload(Workspace& workspace, Stream stream) const {
  const Impl& plan = impl();
  const attention::Backend& backend = attention::backend_of(workspace.device(), "workspace");
  if (!stream.is_default()) check_on("", "stream", stream.device(), workspace.device());
  check(workspace.bytes() >= workspace_bytes(), ErrorCode::workspace_too_small,
        "workspace: has {} bytes, the plan needs {}; ask Plan::workspace_bytes, or kernel.workspace_bytes(bounds)",
        workspace.bytes(), workspace_bytes());
  Bytes pieces[1 + kMaxLevels] = {{plan.bytes.data(), static_cast<int64_t>(plan.bytes.size())}};
  int n = 1;  // page ids that are borrowed come last in the plan
  for (const std::span<const int32_t> borrowed : plan.borrowed_page_ids)
    pieces[n++] = {borrowed.data(), static_cast<int64_t>(borrowed.size_bytes())};
  backend.write(workspace, pieces, stream);
}

}  // namespace weft
