// Which hooks a variant's class has. A member that bears a hook's name and cannot be called as the hook is an error
// that says how it must look: no hook is ignored in silence.
//
// Part of the generated text, so it includes nothing.
#pragma once

namespace weft::detail {

struct HookNames {
  int init, query_transform, key_transform, value_transform, logits_transform, logits_mask, output_transform,
      lse_transform, leaves_logits;
};
// An unqualified look-up of a hook's name in this class is ambiguous iff the variant has such a member.
template <class V>
struct Named : V, HookNames {};

// A class without any hook: the mask of a spec that has none.
struct NoHooks {};

template <class A, class B>
inline constexpr bool kSame = false;
template <class A>
inline constexpr bool kSame<A, A> = true;
template <class T>
concept VoidLike = kSame<T, void>;
template <class T>
concept RealLike = kSame<T, real> || kSame<T, float> || kSame<T, double>;
template <class T>
concept BoolLike = kSame<T, bool>;

template <class V, class P>
struct Hooks {
#define WEFT_HOOK(hook, call, returns, signature)                                                  \
  static constexpr bool named_##hook = !requires { &Named<V>::hook; };                             \
  static constexpr bool hook =                                                                     \
      requires(V v, const P p, const Score c, const Vec x, const Row r, const Request q, real s) { \
    { call } -> returns;                                                                           \
  };                                                                                               \
  static_assert(hook || !named_##hook, "the variant's member " #hook " must be public and callable as `" signature)

  WEFT_HOOK(init, v.init(p, q), VoidLike, "void init(P p, Request r)");
  WEFT_HOOK(query_transform, v.query_transform(p, x, 0, r), RealLike, "real query_transform(P p, Vec x, int i, Row r)");
  WEFT_HOOK(key_transform, v.key_transform(p, x, 0, r), RealLike, "real key_transform(P p, Vec x, int i, Row r)");
  WEFT_HOOK(value_transform, v.value_transform(p, x, 0, r), RealLike, "real value_transform(P p, Vec x, int i, Row r)");
  WEFT_HOOK(logits_transform, v.logits_transform(p, c, s), RealLike, "real logits_transform(P p, Score c, real s)");
  WEFT_HOOK(logits_mask, v.logits_mask(p, c), BoolLike, "bool logits_mask(P p, Score c)");
  WEFT_HOOK(output_transform, v.output_transform(p, x, 0, r), RealLike,
            "real output_transform(P p, Vec x, int i, Row r)");
  WEFT_HOOK(lse_transform, v.lse_transform(p, r), RealLike, "real lse_transform(P p, Row r)");
  WEFT_HOOK(leaves_logits, V::leaves_logits(p), BoolLike, "static bool leaves_logits(P p)");
#undef WEFT_HOOK

  static constexpr bool use_softmax = [] {
    if constexpr (requires { V::use_softmax; })
      return static_cast<bool>(V::use_softmax);
    else
      return true;
  }();
  static_assert(use_softmax || !lse_transform, "lse_transform: without softmax there is no lse");
};

}  // namespace weft::detail
