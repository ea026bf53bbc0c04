// A variant's hooks compiled for the fp64 reference: one score or one vector a call. The module exports
// `weft::abi::ReferenceLeaf weft_reference_leaf`. Part of the generated text, so it includes nothing.
#pragma once

namespace weft::abi {

// The C library's functions, given to the module by the host: a module has no undefined symbols.
struct ReferenceMath {
  double (*exp)(double);
  double (*exp2)(double);
  double (*log)(double);
  double (*tanh)(double);
  double (*sin)(double);
  double (*cos)(double);
};

struct ReferenceScore {
  int batch, qo_idx, kv_idx, qo_head, kv_head, q_pos, kv_pos, qo_len, kv_len;
};

// A null function: the variant has no such hook.
struct ReferenceLeaf {
  int version;
  int use_softmax;
  void (*set_math)(const ReferenceMath*);
  double (*logits)(const Slot*, const ReferenceScore*, double s);
  int (*mask)(const Slot*, const ReferenceScore*);
  void (*query)(const Slot*, const VectorRow*, const double* x, double* y, int dim);
  void (*key)(const Slot*, const VectorRow*, const double* x, double* y, int dim);
  void (*value)(const Slot*, const VectorRow*, const double* x, double* y, int dim);
  void (*output)(const Slot*, const VectorRow*, const double* x, double* y, int dim);
  double (*lse)(const Slot*, const VectorRow*);
};

}  // namespace weft::abi
