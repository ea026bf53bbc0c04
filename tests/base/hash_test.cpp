#include "base/hash.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Sha256, AgreesWithPublishedVectors) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowTheInputIsCut) {
  const std::string text(300, 'x');
  for (size_t cut = 0; cut <= text.size(); cut += 7)
    EXPECT_EQ(Sha256().update(text.substr(0, cut)).update(text.substr(cut)).hex_digest(), sha256_hex(text)) << cut;
}

}  // namespace
}  // namespace weft
