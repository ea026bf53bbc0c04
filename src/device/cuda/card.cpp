#include "device/cuda/card.h"

#include <fmt/ranges.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "base/check.h"

namespace weft::cuda {
namespace {

std::atomic<bool> is_forked_child = false;
constexpr size_t kMaxLaunches = 8;

// What ends a context: every later call in it fails alike.
bool ends_context(api::Result result) {
  constexpr api::Result kEnds[] = {api::kEccUncorrectable, api::kNvlinkUncorrectable, api::kContained,
                                   api::kLaunchTimeout,    api::kContextIsDestroyed,  api::kAssert,
                                   api::kUnknown};
  return result == api::kIllegalAddress || (result >= api::kHardwareStackError && result <= api::kLaunchFailed) ||
         std::find(std::begin(kEnds), std::end(kEnds), result) != std::end(kEnds);
}

int attribute(const Driver& driver, api::DeviceId id, api::DeviceAttribute which) {
  int value = 0;
  driver.device_get_attribute(&value, which, id);
  return value;
}

}  // namespace

// The driver's initialisation and the cards in use; never destroyed.
struct Cards {
  const Driver* driver = nullptr;
  api::Result started = api::kSuccess;
  int count = 0;
  std::mutex mutex;
  std::vector<std::unique_ptr<Card>> cards;

  Cards() : driver(find_driver().driver) {
    if (driver == nullptr) return;
    started = driver->init(0);
    if (started == api::kSuccess) driver->device_get_count(&count);
    cards.resize(static_cast<size_t>(count));
    // A context does not survive fork, and calls in the child may hang.
    pthread_atfork(nullptr, nullptr, [] { is_forked_child = true; });
  }

  static Cards& all() {
    static Cards* const instance = new Cards;
    return *instance;
  }

  std::string list() const {
    std::string text;
    for (int i = 0; i < count; ++i) {
      char name[256] = "";
      api::DeviceId id = 0;
      if (driver->device_get(&id, i) == api::kSuccess) driver->device_get_name(name, sizeof name, id);
      text += fmt::format("{}cuda:{} ({})", i == 0 ? "" : ", ", i, name);
    }
    return text;
  }

  Card& at(int index) {
    const std::scoped_lock lock(mutex);
    std::unique_ptr<Card>& card = cards[static_cast<size_t>(index)];
    if (card == nullptr) card.reset(new Card(*driver, index));
    return *card;
  }
};

int num_cards() { return Cards::all().count; }

void require_card(Device device, std::string_view name) { require_card(device, name, "give Device::cpu()"); }

void require_card(Device device, std::string_view name, std::string_view otherwise) {
  const Cards& cards = Cards::all();
  const std::string given = to_string(device);
  constexpr const char* kRefusal = "{}: required {}, supported cpu, missing {}: {}; {}, or {}";
  const DriverSearch& found = find_driver();
  if (cards.driver == nullptr)
    fail(ErrorCode::unsupported, kRefusal, name, given, found.missing, found.tried, found.remedy, otherwise);
  if (cards.count == 0) {
    const std::string why =
        cards.started == api::kSuccess || cards.started == api::kNoDevice
            ? fmt::format("{} finds none", cards.driver->path)
            : fmt::format("{} does not start: {}", cards.driver->path, cards.driver->describe(cards.started));
    fail(ErrorCode::unsupported, kRefusal, name, given, "a card", why,
         "see whether `nvidia-smi` lists one, and whether this process (its container) may use it", otherwise);
  }
  check(device.index >= 0 && device.index < cards.count, ErrorCode::invalid_device, "{}: {} is not there; allowed: {}",
        name, given, cards.list());
}

Card& Card::at(int index) {
  weft::check(!is_forked_child, ErrorCode::unsupported,
              "cuda:{}: this process was forked from one that used CUDA, whose cards cannot be used here; fork before "
              "the first use of CUDA, or start a new program (Python: multiprocessing's method 'spawn')",
              index);
  if (index < 0 || index >= Cards::all().count) require_card(Device::cuda(index), "device");
  Card& card = Cards::all().at(index);
  card.require_alive();
  return card;
}

Card::Card(const Driver& driver, int index) : driver_(driver), index_(index) {
  char text[256] = "";
  check(driver.device_get(&id_, index), "finding it");
  driver.device_get_name(text, sizeof text, id_);
  name_ = text;
  major_ = attribute(driver, id_, api::kComputeCapabilityMajor);
  minor_ = attribute(driver, id_, api::kComputeCapabilityMinor);
  num_multiprocessors_ = attribute(driver, id_, api::kMultiprocessorCount);
  shared_bytes_ = static_cast<size_t>(attribute(driver, id_, api::kMaxSharedMemoryPerBlockOptin));
  l2_bytes_ = static_cast<size_t>(attribute(driver, id_, api::kL2CacheSize));
  driver.device_total_mem(&memory_bytes_, id_);
  // Never given back: other libraries of this process use the same one, and what is left in it may be freed late.
  check(driver.primary_ctx_retain(&context_, id_), "making its context");
}

bool Card::is_lost() const {
  const std::scoped_lock lock(mutex_);
  return is_forked_child || failure_.has_value();
}

void Card::require_alive() const {
  const std::scoped_lock lock(mutex_);
  if (failure_) throw Error(*failure_);
}

thread_local const Card* Current::innermost_ = nullptr;

std::string Card::recent_launches() const {
  return launches_.empty() ? "no kernel of Weft's ran" : fmt::format("Weft ran '{}'", fmt::join(launches_, "', '"));
}

void Card::fail_for_good(api::Result result, std::string_view what) {
  const std::scoped_lock lock(mutex_);
  if (!failure_)
    failure_ =
        Error(ErrorCode::device_failed,
              fmt::format("cuda:{} ({}): {}: {}; since the last synchronisation that went well {}. Its context is "
                          "lost, and every later call of this card fails alike: start the process anew",
                          index_, name_, what, driver_.describe(result), recent_launches()));
  throw Error(*failure_);
}

void Card::check(api::Result result, std::string_view what) {
  if (result == api::kSuccess) return;
  if (ends_context(result)) fail_for_good(result, what);
  require_alive();
  weft::check(result != api::kOutOfMemory, ErrorCode::out_of_memory, "cuda:{} ({}): {}: {}", index_, name_, what,
              driver_.describe(result));
  weft::check(result != api::kInvalidHandle, ErrorCode::invalid_argument,
              "cuda:{} ({}): {}: {}; give a stream of this card that is there still", index_, name_, what,
              driver_.describe(result));
  throw InternalError(fmt::format("cuda:{} ({}): {}: {}", index_, name_, what, driver_.describe(result)));
}

void Card::check_launch(api::Result result, std::string_view kernel) {
  if (result != api::kSuccess) fail_for_good(result, fmt::format("launching '{}'", kernel));
  const std::scoped_lock lock(mutex_);
  ++num_launches_;
  if (std::find(launches_.begin(), launches_.end(), kernel) != launches_.end()) return;
  if (launches_.size() == kMaxLaunches) launches_.pop_back();
  launches_.emplace_back(kernel);
}

int64_t Card::num_launches() const {
  const std::scoped_lock lock(mutex_);
  return num_launches_;
}

void Card::forget_launches() {
  const std::scoped_lock lock(mutex_);
  launches_.clear();
}

Card::Ledger Card::ledger() const {
  const std::scoped_lock lock(mutex_);
  return ledger_;
}

void Card::count(size_t Ledger::*kind, size_t bytes, bool taken) {
  const std::scoped_lock lock(mutex_);
  ledger_.*kind += taken ? bytes : -bytes;
  ledger_.num_allocations += taken ? 1 : -1;
}

}  // namespace weft::cuda
