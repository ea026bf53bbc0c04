// Names of a program bound to structures, tensors and numbers, all checked before anything runs.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "loop/interpret.h"
#include "sparse/argument_names.h"
#include "sparse/formats/structure.h"
#include "sparse/schedule.h"
#include "weft/device.h"

namespace weft::sparse {

// What a device keeps of a binding.
struct Placed {
  virtual ~Placed() = default;
};

// What the compiled phases are called with. Holds what it points to, but for the caller's tensors.
struct Bound {
  loop::Memory numbers = {};                                                // parameters
  loop::Memory structure_numbers = {};                                      // those that the structures tell
  std::map<std::string, std::vector<int32_t>> arrays = {};                  // of formats that were made here
  std::map<std::string, std::vector<int64_t>> wide_arrays = {};             // of axes whose indices are of int64
  std::map<std::string, Workspace> values = {};                             // of buffers that are filled here
  std::map<std::string, std::shared_ptr<const Structure::Data>> held = {};  // by axis
  std::map<std::string, void*> pointers = {};                               // by the name of array or buffer
  struct Given {
    std::string name;
    size_t bytes;
    bool written;
    void** pointer;  // in `pointers`
  };
  std::vector<Given> given = {};  // the caller's tensors, by name
  std::shared_ptr<Placed> placed = {};
};

// Arrays and parameters: from structures by axis, from the formats made of them, from `scalars` and shapes. Throws
// Error(invalid_argument), Error(invalid_shape) or Error(invalid_dtype) for what does not fit together.
void bind_structures(const Stage1& program, const std::vector<Decomposition>& decompositions,
                     const std::map<std::string, Structure>& structures, Bound& bound,
                     const ArgumentNames& names = ArgumentNames::of_library());
void bind_parameters(const Stage1& program, const std::map<std::string, int64_t>& scalars,
                     const std::map<std::string, TensorView>& buffers, Bound& bound,
                     const ArgumentNames& names = ArgumentNames::of_library());
// The parameters that shapes of tensors tell, also of some of the buffers alone.
void bind_shapes(const Stage1& program, const std::map<std::string, TensorView>& buffers, Bound& bound,
                 const ArgumentNames& names = ArgumentNames::of_library());
// Real parameters, all of them. Throws Error(invalid_argument).
void bind_reals(const Stage1& program, const std::map<std::string, double>& reals, Bound& bound,
                const ArgumentNames& names = ArgumentNames::of_library());
// Where the code runs, and the buffers that are given memory there. Other temporary buffers get none.
struct OwnBuffers {
  Names names = {};
  Device device = {};
};
// Tensors of the caller, which lie on that device; memory for its own.
void bind_buffers(const Stage1& program, const std::map<std::string, TensorView>& buffers, const OwnBuffers& own,
                  Bound& bound, const ArgumentNames& names = ArgumentNames::of_library());
// Whether it stores into the buffer, which the caller then gives to be written.
bool writes(const Stage1& program, const std::string& buffer);
// Other tensors of the same names, types and shapes instead.
void rebind_buffers(const std::map<std::string, TensorView>& buffers, Bound& bound);
// Arrays of rows, which follow from others; of axes that a schedule gave them.
void bind_rows(const Declarations& declared, Bound& bound);
// The axis that leads to no other, below it or itself: what a structure is given for.
std::string last_below(const Stage1& program, const std::string& axis);
// What the caller does not give: what preprocessing writes, and temporary buffers.
Names made_here(const Stage1& program);

}  // namespace weft::sparse
