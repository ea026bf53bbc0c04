// What Python's objects hold: Weft's own, with a mutex where two threads could meet in it, and arrays of other
// libraries, which are looked at anew by each call, so that none is read that was freed or resized since.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "array.h"
#include "attention/fields.h"
#include "weft/attention.h"
#include "weft/block_sparse.h"
#include "weft/levels.h"
#include "weft/ops.h"

namespace weft::python {

struct PyWorkspace {
  PyWorkspace(Device device, size_t bytes) : workspace(device, bytes) {}
  Workspace workspace;
  std::mutex mutex;
};

struct PyPageTable {
  PyPageTable(int page_size, int64_t num_pages) : table(page_size, num_pages) {}
  PageTable table;
  uint64_t changes = 0;  // of the table, or of what view() points to
  std::mutex mutex;
};

// weft.PageTableView: arrays, or the view of a PageTable as long as that stays as it is.
struct PyPages {
  int page_size = 0;
  int64_t num_pages = 0;
  std::optional<IntsLike> kv_page_indptr = {}, kv_page_indices = {}, kv_last_page_len = {};
  std::shared_ptr<PyPageTable> table = {};
  PageTableView of_table = {};
  uint64_t changes = 0;

  PageTableView view(std::string_view name, Arguments& call) const;
};

struct PyLevel {
  std::optional<IntsLike> qo_indptr = {};
  PyPages pages = {};
};

// weft.BlockSparse: arrays, or the lists that a constructor made.
struct PyBlocks {
  int block_rows = 0, block_cols = 0;
  int64_t num_blocks = 0;
  std::optional<IntsLike> block_indptr = {}, block_indices = {}, last_block_len = {}, kv_positions = {},
                          q_positions = {}, bits_index = {}, bits = {};
  std::shared_ptr<const BlockLists> lists = {};

  BlockSparse view(Arguments& call) const;
};

// weft.SharedLevels
struct PySharedLevels {
  SharedLevels levels;
};

// A parameter: a sequence of weft.Level, or SharedLevels, which stand in for the pages of their input.
struct PyLevels {
  std::vector<PyLevel> list = {};
  std::shared_ptr<PySharedLevels> shared = {};
};

// A parameter: a dict of numbers by name.
struct Scalars {
  std::vector<ScalarArg> list = {};
};
// A parameter: a dict of arrays by name.
struct Tensors {
  std::vector<std::pair<std::string, ArrayLike>> list = {};
};

// What weft.PlanInput says, and where the arrays are that it names.
struct PyPlanInput {
  int num_qo_heads = 0, num_kv_heads = 0;
  std::optional<IntsLike> qo_indptr = {};
  std::optional<PyPages> pages = {};
  std::optional<PyBlocks> blocks = {};
  std::optional<IntsLike> kv_indptr = {}, kv_len = {};
  int64_t max_kv_len = 0;
  int num_workers = 0;
  PlanMode mode = PlanMode::balanced;
  int fixed_split_size = 0;
  PyLevels levels = {};
  std::optional<IntsLike> request_order = {}, mask_indptr = {};
  Scalars scalars = {};
  std::optional<PlanBounds> bounds = {};
  int64_t spare_pages = 0;
  bool borrow_page_ids = false;

  // PlanInput and the structs it points to; as long as this, `call` and the object itself live.
  struct Views {
    PlanInput input = {};
    BlockSparse blocks = {};
    std::vector<Level> levels = {};
  };
  void view(Arguments& call, Views& to) const;
};

struct PyPlan {
  Plan plan;
  // Borrowed page ids: the objects that they were read from, and what kept them alive.
  std::optional<PyPlanInput> borrowed = {};
  std::shared_ptr<const void> borrowed_memory = {};
  // Of run without a workspace: made once, and uploaded to once a plan.
  std::unique_ptr<PyWorkspace> own_workspace = {};
  bool uploaded = false;
  void* uploaded_on = nullptr;  // the handle of the stream
  std::mutex mutex;
};

struct PyKvCache {
  ArrayLike k = {};
  std::optional<ArrayLike> v = {}, k_scale = {}, v_scale = {};
};

struct KvLike {
  PyKvCache cache = {};
};

// weft.Generator
struct PyGenerator {
  Philox philox;
};

// A card's stream, or a team of this machine's threads, which it holds.
struct PyStream {
  Stream stream = {};
  std::shared_ptr<WorkerTeam> team = {};
};
inline Stream stream_of(const std::optional<PyStream>& stream) { return stream ? stream->stream : Stream(); }

}  // namespace weft::python

namespace nanobind::detail {

template <>
struct type_caster<weft::python::Scalars> {
  NB_TYPE_CASTER(weft::python::Scalars, const_name("collections.abc.Mapping[str, float]"))
  bool from_python(handle source, uint32_t, cleanup_list*) noexcept;
  static handle from_cpp(const weft::python::Scalars& scalars, rv_policy, cleanup_list*) noexcept;
};

template <>
struct type_caster<weft::python::Tensors> {
  NB_TYPE_CASTER(weft::python::Tensors, const_name("collections.abc.Mapping[str, weft._typing.Array]"))
  bool from_python(handle source, uint32_t, cleanup_list*) noexcept;
  static handle from_cpp(const weft::python::Tensors& tensors, rv_policy, cleanup_list*) noexcept;
};

// A parameter: weft.KvCache, a pair of arrays, or one array of both.
template <>
struct type_caster<weft::python::KvLike> {
  NB_TYPE_CASTER(weft::python::KvLike, const_name("weft.KvCache | tuple[weft._typing.Array, weft._typing.Array] | "
                                                  "weft._typing.Array"))
  bool from_python(handle source, uint32_t, cleanup_list*) noexcept;
  static handle from_cpp(const weft::python::KvLike& kv, rv_policy, cleanup_list*) noexcept;
};

template <>
struct type_caster<weft::python::PyLevels> {
  NB_TYPE_CASTER(weft::python::PyLevels, const_name("collections.abc.Sequence[weft.Level] | weft.SharedLevels"))
  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
    value = {};
    make_caster<std::shared_ptr<weft::python::PySharedLevels>> shared;
    if (!source.is_none() && shared.from_python(source, flags, cleanup)) {
      value.shared = shared.operator cast_t<std::shared_ptr<weft::python::PySharedLevels>>();
      return true;
    }
    make_caster<std::vector<weft::python::PyLevel>> list;
    if (!list.from_python(source, flags, cleanup)) return false;
    value.list = std::move(list.value);
    return true;
  }
  static handle from_cpp(const weft::python::PyLevels& levels, rv_policy policy, cleanup_list* cleanup) noexcept {
    if (levels.shared)
      return make_caster<std::shared_ptr<weft::python::PySharedLevels>>::from_cpp(levels.shared, policy, cleanup);
    return make_caster<std::vector<weft::python::PyLevel>>::from_cpp(levels.list, rv_policy::copy, cleanup);
  }
};

}  // namespace nanobind::detail
