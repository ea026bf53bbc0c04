// Verbs whose sources have not been merged yet: each says so when it is called. To be deleted with the last of them.
#include "base/check.h"
#include "cli/cli.h"

namespace weft::cli {
namespace {
void add_missing(CLI::App& app, const char* name) {
  CLI::App* verb = app.add_subcommand(name, "Not in this build");
  verb->allow_extras();
  verb->callback([name] { fail(ErrorCode::unsupported, "required is weft {}, which is not in this build", name); });
}
}  // namespace



[[gnu::weak]] void add_plan(CLI::App& app, Context&) { add_missing(app, "plan"); }



}  // namespace weft::cli
