// Links the model library and prints what it says of a file that is not there.
#include <weft/model.h>

#include <cstdio>

int main() {
  try {
    weft::ModelFile file("/nowhere/stories.gguf");
  } catch (const weft::Error& error) {
    std::puts(error.what());
  }
}
