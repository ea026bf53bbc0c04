#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {

void storage_align(Stage2& stage, const std::string& buffer, int64_t factor, int64_t offset) {
  if (factor < 2 || factor > 4096 || offset < 0 || offset >= factor)
    refuse("storage_align", buffer,
           fmt::format("the factor is {} and the offset {}; 2 to 4096 are allowed, and 0 to below the factor", factor,
                       offset));
  Stmt* found = nullptr;
  visit(stage.body, [&](Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::allocate && stmt.name == buffer) found = &stmt;
  });
  if (found == nullptr)
    refuse("storage_align", buffer,
           "no memory of that name was made; cache_read, cache_write, rfactor and set_scope make some");
  if (found->indices.size() < 2) refuse("storage_align", buffer, "it has one dimension: no row begins behind another");
  int64_t extent = 0;
  ensure(loop::is_integer(found->indices.back(), &extent), "memory '{}' has an extent that is no literal", buffer);
  found->indices.back() = extent + ((offset - extent) % factor + factor) % factor;
}

}  // namespace weft::sparse
