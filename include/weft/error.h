// What Weft throws. A user's mistake is a weft::Error with a stable code; a broken promise of the
// library itself is a weft::InternalError. Nothing in the library prints, aborts or exits.
//
//   try { kernel.run(ws, tensors, stream); }
//   catch (const weft::Error& e) { log(e.code(), e.what()); }   // "invalid_shape: q: [4, 32, 100] ..."
//
// docs/errors.md lists every code with an example and its remedy.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace weft {

enum class ErrorCode {
  invalid_argument,     // a number, name or option outside what is allowed
  invalid_shape,        // rank or extent of a tensor
  invalid_stride,       // strides or alignment of a tensor
  invalid_dtype,        // element type of a tensor
  invalid_indptr,       // an indptr that does not start at 0, decreases, or ends elsewhere than its data
  invalid_page,         // a page id or a last_page_len outside its pool
  invalid_device,       // a tensor, workspace or stream of another device
  plan_mismatch,        // plan, workspace and tensors do not belong together
  workspace_too_small,  //
  unsupported,          // a capability that is not there: says required, supported and missing
  no_compiler,          // run-time compilation is needed and no compiler was found
  compile_failed,       // the variant's text does not compile; the message shows its own lines
  cache_refused,        // the kernel cache's folder is not private to this user
  io_error,             // the operating system refused a read or a write
  invalid_file,         // a file's content is malformed or truncated
  invalid_template,     // a chat template uses what is not supported, with its line
  invalid_token,        // a token id or text that the tokenizer does not know
  context_full,         // more tokens than the context or the page pool holds
  out_of_memory,        //
  device_failed,        // a card's context is lost: a kernel failed, or the card did
  queue_full,           // more requests than an engine's queue takes: come again later
};

// The code's name as written above, e.g. "invalid_shape".
std::string_view to_string(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message);
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// A broken invariant of Weft: please report it.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace weft
