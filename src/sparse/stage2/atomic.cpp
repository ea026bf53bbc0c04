#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {

void atomic(Stage2& stage, const std::string& name) {
  Stmt& block = find_block(stage, name).block();
  check_written_surely("atomic", name, block);
  int sums = 0;
  for (Stmt& store : block.body) {
    if (store.kind != Stmt::Kind::store) continue;
    const SparseBuffer* buffer = stage.find_buffer(store.name);
    if (buffer == nullptr)
      refuse("atomic", name, fmt::format("'{}' is memory that no other iteration sees", store.name));
    if (buffer->dtype != DType::fp32 && buffer->dtype != DType::fp64)
      refuse(
          "atomic", name,
          fmt::format("'{}' is of {}; fp32 and fp64 are added to at once", store.name, weft::to_string(buffer->dtype)));
    const Expr target = loop::load(store.name, store.indices, loop::type_of(buffer->dtype));
    if (store.value->op != Op::add || !(store.value->operands[0] == target) ||
        loop::loads_from(store.value->operands[1], store.name))
      refuse(
          "atomic", name,
          fmt::format("the block is no sum of the form {} = {} + x", loop::to_words(target), loop::to_words(target)));
    store.atomic = true;
    ++sums;
  }
  if (sums == 0) refuse("atomic", name, "the block stores nothing");
}

}  // namespace weft::sparse
