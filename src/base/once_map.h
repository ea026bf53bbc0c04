// Values that are made once for a key and stay as long as the map, at one address: a kernel may hold it.
//
//   OnceMap<std::string, Module> modules;
//   const Module& module = modules.get(hash, text, [&] { return load(text); });
//
// Thread-safe. Threads that ask for the same key wait for the one that makes its value; what throws leaves nothing
// behind. The map does not hash: equal keys come with equal hashes. A key is looked for by anything that it can be
// compared with, and made of when it is new.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

namespace weft {

template <class Key, class Value>
class OnceMap {
 public:
  template <class Like>
  const Value* find(size_t hash, const Like& key) const {
    const std::shared_lock lock(mutex_);
    const auto slot = find_slot(hash, key);
    return slot != nullptr && slot->value ? &*slot->value : nullptr;  // the slot stays in the map
  }

  template <class Like, class Make>
  const Value& get(size_t hash, const Like& key, const Make& make) {
    for (;;) {
      if (const Value* value = find(hash, key)) return *value;
      const std::shared_ptr<Slot> slot = slot_of(hash, key);
      const std::scoped_lock making(slot->making);
      if (slot->is_given_up) continue;
      if (!slot->value) fill(*slot, hash, make);
      return *slot->value;
    }
  }

 private:
  struct Slot {
    template <class Like>
    explicit Slot(const Like& of) : key(of) {}
    const Key key;
    std::mutex making;           // held by the thread that makes the value
    std::optional<Value> value;  // is set under mutex_, once
    bool is_given_up = false;    // its maker threw, and it is no longer in the map
  };

  template <class Like>
  std::shared_ptr<Slot> find_slot(size_t hash, const Like& key) const {
    const auto [begin, end] = slots_.equal_range(hash);
    for (auto it = begin; it != end; ++it)
      if (it->second->key == key) return it->second;
    return nullptr;
  }

  template <class Like>
  std::shared_ptr<Slot> slot_of(size_t hash, const Like& key) {
    const std::unique_lock lock(mutex_);
    if (auto slot = find_slot(hash, key)) return slot;
    return slots_.emplace(hash, std::make_shared<Slot>(key))->second;
  }

  template <class Make>
  void fill(Slot& slot, size_t hash, const Make& make) {
    try {
      Value value = make();
      const std::unique_lock lock(mutex_);
      slot.value.emplace(std::move(value));
    } catch (...) {
      const std::unique_lock lock(mutex_);
      slot.is_given_up = true;
      const auto [begin, end] = slots_.equal_range(hash);
      for (auto it = begin; it != end; ++it)
        if (it->second.get() == &slot) {
          slots_.erase(it);
          break;
        }
      throw;
    }
  }

  mutable std::shared_mutex mutex_;
  std::unordered_multimap<size_t, std::shared_ptr<Slot>> slots_;
};

}  // namespace weft
