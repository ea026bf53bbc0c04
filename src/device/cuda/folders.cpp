#include "device/cuda/folders.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/env.h"

namespace weft::cuda {
namespace {

namespace fs = std::filesystem;

// The entries of a folder that begin with `prefix`, last name first: of versions the newest, more or less.
std::vector<std::string> entries(const fs::path& folder, std::string_view prefix) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with(prefix)) found.push_back(it->path());
  std::sort(found.rbegin(), found.rend());
  return found;
}

// What the loader searches beside LD_LIBRARY_PATH: the folders that its configuration names, and its own.
void add_loader_folders(std::vector<std::string>& folders, const std::string& file, int depth = 0) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    line = line.substr(0, line.find_last_not_of(" \t") + 1);
    if (line.starts_with('/')) folders.push_back(line);
    constexpr std::string_view kInclude = "include ";
    if (!line.starts_with(kInclude) || depth > 3) continue;
    const fs::path pattern = line.substr(kInclude.size());  // FOLDER/*.conf
    auto files = entries(pattern.parent_path(), "");
    std::reverse(files.begin(), files.end());
    for (const std::string& other : files)
      if (other.ends_with(".conf")) add_loader_folders(folders, other, depth + 1);
  }
}

std::vector<std::string> toolkits() {
  std::vector<std::string> all = env::cuda_toolkits();
  for (const std::string& toolkit : entries("/usr/local", "cuda")) all.push_back(toolkit);
  return all;
}

// Where Python's packages lie: PREFIX/lib/pythonX.Y/site-packages for each PREFIX/bin on PATH.
std::vector<fs::path> python_packages() {
  std::vector<fs::path> all;
  for (const std::string& programs : env::search_folders())
    if (programs.ends_with("/bin"))
      for (const std::string& python : entries(fs::path(programs).parent_path() / "lib", "python3"))
        for (const char* packages : {"site-packages", "dist-packages"}) all.push_back(fs::path(python) / packages);
  return all;
}

}  // namespace

std::vector<std::string> library_folders() {
  const auto named = env::cuda_libs();
  if (named && named->empty()) return {};
  std::vector<std::string> folders = named.value_or(std::vector<std::string>{});
  for (const std::string& folder : env::loader_folders()) folders.push_back(folder);
  add_loader_folders(folders, "/etc/ld.so.conf");
  for (const char* folder : {"/lib64", "/usr/lib64", "/lib", "/usr/lib"}) folders.emplace_back(folder);
  for (const std::string& toolkit : toolkits())
    for (const char* lib : {"/lib64", "/lib"}) folders.push_back(toolkit + lib);
  for (const fs::path& packages : python_packages())
    for (const std::string& package : entries(packages / "nvidia", "cu")) folders.push_back(package + "/lib");
  std::vector<std::string> unique;
  for (const std::string& folder : folders)
    if (std::find(unique.begin(), unique.end(), folder) == unique.end()) unique.push_back(folder);
  return unique;
}

std::vector<std::string> program_folders() {
  std::vector<std::string> folders;
  for (const std::string& toolkit : toolkits()) folders.push_back(toolkit + "/bin");
  for (const fs::path& packages : python_packages()) folders.push_back(packages / "triton/backends/nvidia/bin");
  return folders;
}

}  // namespace weft::cuda
