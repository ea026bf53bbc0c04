// Prompts that were computed before: a radix tree of token ids in whole pages, a tree for each salt.
//
// A node has the tokens that follow its parent's, and holds their pages.
// Requests lock the node that they go on from; the least recently used leaves that nobody locks are evicted, page by
// page from their end. What throws, for want of memory, changes nothing; giving back never throws.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "serve/model_runner.h"
#include "weft/serve.h"

namespace weft::serve {

class PrefixCache {
 public:
  struct Node;
  struct Match {
    Node* node = nullptr;  // null: nothing is there
    int64_t tokens = 0;    // from the start, whole pages
  };

  explicit PrefixCache(ModelRunner& model);
  ~PrefixCache();

  // The last node on the way to this one that ends within so many tokens; null: none.
  Node* within(Node* node, int64_t tokens) const;
  // The nodes from the roots to those that a step's pieces have locked (null: none), as the model takes them.
  struct Shared {
    std::vector<int32_t> parent = {}, num_pages = {}, node_of_piece = {};
    SharedPrefixes view() const { return {parent, num_pages, node_of_piece}; }
  };
  Shared shared_by(std::span<Node* const> pieces) const;

  // The longest cached beginning of `tokens`; it counts as used now.
  Match match(const std::string& salt, std::span<const int32_t> tokens);
  // The first `tokens` tokens of a match, whole pages.
  Match shortened(Match match, int64_t tokens) const;
  // A sequence that begins with a match.
  ModelRunner::Sequence begin(const Match& match) const;
  // What a running request has locked grows to the whole pages of `tokens`, which its `sequence` begins with; the new
  // match is locked instead. Not where another request has put the same tokens in other pages meanwhile.
  Match extend(const std::string& salt, const Match& locked, std::span<const int32_t> tokens,
               ModelRunner::Sequence sequence);
  // Keeps the whole pages of a sequence that is about to be released, as far as their tokens are not there.
  void keep(const std::string& salt, std::span<const int32_t> tokens, ModelRunner::Sequence sequence);
  // Cuts a node that goes on behind the match, so that no more than the match is locked.
  Match lock(Match match);
  void lock(Node* node);    // null: nothing
  void unlock(Node* node);  //
  // Frees up to `pages` pages, as far as nobody locks them; returns how many.
  int64_t evict(int64_t pages);

  int64_t held_pages() const { return held_pages_; }
  int64_t evictable_pages() const { return held_pages_ - locked_pages_; }
  std::vector<CachedPrefix> describe() const;

 private:
  struct Walk;
  Walk walk(const std::string& salt, std::span<const int32_t> tokens, uint64_t now);
  Node* split(Node* node, int64_t tokens);
  std::span<const int32_t> whole_pages(std::span<const int32_t> tokens) const;
  Node* insert(const std::string& salt, Walk at, std::span<const int32_t> tokens, ModelRunner::Sequence sequence);
  std::unique_ptr<Node> make_node();
  void list(Node* node);    // among the free leaves
  void unlist(Node* node);  //
  void drop(Node* node);
  void trim(Node* node, int64_t pages);
  void touch(Node* node, uint64_t now);
  bool is_free_leaf(const Node& node) const;
  std::span<const int32_t> first_page(const Node& node) const;

  ModelRunner& model_;
  int page_size_;
  std::map<std::string, std::unique_ptr<Node>> roots_;
  struct Older {
    bool operator()(const Node* a, const Node* b) const;
  };
  using FreeLeaves = std::set<Node*, Older>;  // by last use
  FreeLeaves free_leaves_;
  uint64_t uses_ = 0, made_ = 0;
  int64_t held_pages_ = 0, locked_pages_ = 0;
};

}  // namespace weft::serve
