#include <set>

#include "base/check.h"
#include "sparse/stage2/lower_init.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {

void place_init(const Stage2& stage, Nest nest, size_t place, const std::string& name) {
  Stmt& block = nest.block();
  Body init = std::move(block.init);
  block.init.clear();
  Body before = spatial_nest(stage, nest, place, {loop::make_block(name, std::move(init))}, Inner::init);
  Body& body = *nest.path[place].body;
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(nest.path[place].index), before.begin(), before.end());
}

namespace {

// Init that runs before the whole loop overtakes what ran in it before, at other points or beside the reductions.
void check_init_first(const Stage2& stage, const LoopInNest& found) {
  const Stmt& block = found.nest.block();
  const Dependences inside(stage, found.nest.around(found.place), {&found.loop()});
  std::set<const Stmt*> own;
  visit(block.init, [&](const Stmt& stmt) { own.insert(&stmt); });
  const auto is_init = [&](const MemoryAccess& access) { return own.contains(access.stmt); };
  if (const auto found_one = inside.overtakes(is_init))
    refuse("decompose_reduction", found.name,
           fmt::format("init would run before {}, which may be what {} is at another point", found_one->later.text(),
                       found_one->earlier.text()));
}

}  // namespace

void decompose_reduction(Stage2& stage, const std::string& name) {
  const LoopInNest found = find_loop(stage, name);
  if (found.nest.block().init.empty())
    refuse("decompose_reduction", name, fmt::format("block '{}' has no init; it was taken out already", found.block));
  const Names reductions = found.nest.reductions();
  for (size_t i = 0; i < found.place; ++i)
    if (reductions.contains(found.nest.path[i].stmt().name))
      refuse("decompose_reduction", name,
             fmt::format("the reduction '{}' stands around it: init would run again and again; name that loop or one "
                         "outside of it",
                         found.nest.path[i].stmt().name));
  if (const std::string memory = memory_needed(found.loop().body, found.nest.block().init); !memory.empty())
    refuse("decompose_reduction", name,
           fmt::format("init needs '{}', which is kept within the loop; name a loop within that, or decompose first",
                       memory));
  check_init_first(stage, found);
  place_init(stage, found.nest, found.place, found.block + "_init");
}

void lower_init(Stage2& stage) {
  std::vector<std::string> blocks;
  visit(stage.body, [&](Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::block && !stmt.init.empty()) blocks.push_back(stmt.name);
  });
  for (const std::string& name : blocks) {
    Nest nest = find_block(stage, name);
    const Names reductions = nest.reductions();
    size_t place = 0;
    while (place + 1 < nest.path.size() && !reductions.contains(nest.path[place].stmt().name)) ++place;
    place_init(stage, nest, place, "");
  }
}

}  // namespace weft::sparse
