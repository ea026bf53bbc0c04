// Mistakes of the compiler that these tests find. Each entry goes with its mend.
#include <algorithm>

#include "tests/sparse/random/case.h"

namespace weft::sparse::random {
namespace {

bool says(const Problem& problem, const char* part) { return problem.what.find(part) != std::string::npos; }
bool is_internal(const Problem& problem) { return problem.kind == "internal error"; }

bool has_load(const std::vector<Term>& indices) {
  return std::any_of(indices.begin(), indices.end(), [](const Term& index) { return !buffers_in(index).empty(); });
}

// Whether some iteration with init is written at loaded places, or reads an initialised buffer elsewhere.
bool init_meets(const Case& c) {
  for (const IterationDef& it : c.program.iterations)
    for (const StoreDef& init : it.init)
      for (const StoreDef& store : it.body) {
        if (has_load(store.indices)) return true;
        const std::string text = to_text(store.value), own = to_text(load(init.buffer, init.indices, 'i'));
        for (size_t at = text.find(init.buffer + "["); at != text.npos; at = text.find(init.buffer + "[", at + 1))
          if (text.compare(at, own.size(), own) != 0) return true;
      }
  return false;
}

bool has_padding(const Case& c) {
  return std::any_of(c.program.axes.begin(), c.program.axes.end(), [](const AxisDef& axis) {
    return axis.kind == AxisKind::sparse_fixed || (axis.parent.empty() && axis.length == 1);
  });
}

bool has_init(const Case& c) {
  return std::any_of(c.program.iterations.begin(), c.program.iterations.end(),
                     [](const IterationDef& it) { return !it.init.empty(); });
}

const Known kKnown[] = {
    {"init of points that meet, or that others read, or beside a scattered store",
     [](const Case& c, const Problem& p) { return p.kind == "wrong" && init_meets(c); }},
    {"init within a guard of a loop that runs once, a coordinate of the length that finds padding",
     [](const Case& c, const Problem& p) { return p.kind == "wrong" && has_padding(c); }},
    {"init of fused axes",
     [](const Case& c, const Problem& p) {
       return is_internal(p) && c.has("sparse_fuse") && has_init(c) && says(p, "no variable");
     }},
    {"division by zero in the compiler: fused axes of width 0",
     [](const Case& c, const Problem& p) { return p.kind == "crash" && says(p, "SIGFPE") && c.has("sparse_fuse"); }},
    {"reorder does not see dependences",
     [](const Case& c, const Problem& p) {
       return p.kind == "wrong" && (c.has("reorder") || c.has("sparse_reorder"));
     }},
    {"reorder sinks a guard",
     [](const Case& c, const Problem& p) { return is_internal(p) && c.has("reorder") && says(p, "is accessed"); }},
    {"init leaves a nest that others share",
     [](const Case& c, const Problem& p) { return p.kind == "wrong" && c.has("decompose_reduction"); }},
    {"cache_read of what is read under a condition, of indices, out of a block",
     [](const Case& c, const Problem& p) { return is_internal(p) && c.has("cache_read"); }},
    {"cache_write writes what nobody has set",
     [](const Case& c, const Problem& p) { return p.kind == "wrong" && c.has("cache_write"); }},
    {"memory beside a bound loop",
     [](const Case& c, const Problem& p) {
       return is_internal(p) && (c.has("rfactor") || c.has("set_scope")) && says(p, "no buffer");
     }},
    {"rfactor and cache_write of a block with names of its own",
     [](const Case& c, const Problem& p) {
       return is_internal(p) && (c.has("rfactor") || c.has("cache_write")) && says(p, "no variable");
     }},
    {"compute_inline of what cache_write made",
     [](const Case& c, const Problem& p) { return is_internal(p) && c.has("compute_inline") && says(p, "no buffer"); }},
    {"out of bounds behind a guard that reorder has sunk",
     [](const Case& c, const Problem& p) { return p.kind == "crash" && c.has("reorder"); }},
    {"prefetching what a let names",
     [](const Case& c, const Problem& p) {
       return p.kind == "does not compile" && c.has("annotate") && says(p, "was not declared");
     }},
    {"an access under a condition that never holds is refused",
     [](const Case&, const Problem& p) { return p.kind == "refused" && says(p, "outside of its"); }},
    {"threads along x of a kernel that no loop is bound to there",
     [](const Case& c, const Problem& p) { return p.kind == "fault" && c.has("bind") && says(p, "no barrier"); }},
};

}  // namespace

const Known* find_known(const Case& c, const Problem& problem) {
  for (const Known& known : kKnown)
    if (known.is(c, problem)) return &known;
  return nullptr;
}

}  // namespace weft::sparse::random
