#include "serve/http/page.h"

#include <fmt/format.h>

#include <random>

#include "serve/http/page_text.h"  // from page.html

namespace weft::serve::http {

// What the page may do is its own script and style, known by a number that is new each time, and calls to this server.
Response page() {
  static thread_local std::mt19937_64 random(std::random_device{}());
  const std::string nonce = fmt::format("{:016x}{:016x}", random(), random());
  constexpr std::string_view kMark = "NONCE";
  std::string html;
  std::string_view rest = kPageText;
  for (size_t at; (at = rest.find(kMark)) != std::string_view::npos; rest.remove_prefix(at + kMark.size()))
    html += std::string(rest.substr(0, at)) + nonce;
  html += rest;
  return {
      .status = 200,
      .body = std::move(html),
      .content_type = "text/html; charset=utf-8",
      .headers = {{"Content-Security-Policy",
                   fmt::format("default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; connect-src 'self'; "
                               "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                               nonce)},
                  {"Referrer-Policy", "no-referrer"},
                  {"X-Content-Type-Options", "nosniff"}}};
}

}  // namespace weft::serve::http
