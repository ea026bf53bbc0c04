#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/check.h"
#include "base/env.h"
#include "device/cuda/folders.h"
#include "jit/host/process.h"
#include "jit/nvrtc/cubin.h"

namespace weft::jit {
namespace {

struct Disassembler {
  std::string path;
  std::vector<std::string> flags;
};

Disassembler find_disassembler() {
  const Disassembler known[] = {{"nvdisasm", {"--print-code", "--print-line-info"}}, {"cuobjdump", {"-sass"}}};
  const std::vector<std::string> folders = cuda::program_folders();
  for (const Disassembler& one : known) {
    if (const auto found = env::find_program(one.path)) return {*found, one.flags};
    for (const std::string& folder : folders)
      if (const std::string path = folder + "/" + one.path; access(path.c_str(), X_OK) == 0) return {path, one.flags};
  }
  fail(ErrorCode::unsupported,
       "disassembling: required nvdisasm or cuobjdump, supported where either is on PATH{}{}, missing both; they come "
       "with the CUDA toolkit, and with `pip install triton`",
       folders.empty() ? "" : " or in ", fmt::join(folders, ", "));
}

// Of a file that a program reads, and that goes with the object.
class TempFile {
 public:
  explicit TempFile(std::string_view bytes) : path_(env::temp_dir() + "/weft-cubin-XXXXXX") {
    const int fd = mkstemp(path_.data());
    bool is_written = fd >= 0;
    while (is_written && !bytes.empty()) {
      const ssize_t n = write(fd, bytes.data(), bytes.size());
      is_written = n > 0;
      if (is_written) bytes.remove_prefix(static_cast<size_t>(n));
    }
    const int error = errno;
    if (fd >= 0) close(fd);
    if (is_written) return;
    if (fd >= 0) unlink(path_.c_str());
    fail(ErrorCode::io_error, "'{}' cannot be written: {}; set TMPDIR to a folder that you may write", path_,
         std::generic_category().message(error));
  }
  ~TempFile() { unlink(path_.c_str()); }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

std::string disassemble(std::string_view cubin) {
  check(is_cubin(cubin), ErrorCode::invalid_file, "disassembling: what is given is no cubin");
  const Disassembler program = find_disassembler();
  const TempFile file(cubin);
  ProcessRequest request;
  request.path = program.path;
  request.arguments = program.flags;
  request.arguments.push_back(file.path());
  request.most_output = size_t{256} << 20;
  ProcessResult result = run_process(request);
  check(result.end != ProcessResult::End::not_started, ErrorCode::io_error, "'{}' cannot be started: {}", program.path,
        std::generic_category().message(result.code));
  check(result.ok(), ErrorCode::invalid_file, "'{}' does not take the cubin: {}", program.path,
        result.errors.substr(0, result.errors.find('\n')));
  return std::move(result.output);
}

}  // namespace weft::jit
