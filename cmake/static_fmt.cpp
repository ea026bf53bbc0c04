// fmt's compiled part, for what links it statically: Debian 12 has it as a shared library alone, and with its headers all
// that a static one is made of. Used with -DWEFT_LINK_STATIC=ON.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

// What headers declare and leave to the library.
template auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template locale_ref::locale_ref(const std::locale& locale);
template auto locale_ref::get<std::locale>() const -> std::locale;
template auto thousands_sep_impl(locale_ref locale) -> thousands_sep_result<char>;
template auto thousands_sep_impl(locale_ref locale) -> thousands_sep_result<wchar_t>;
template auto decimal_point_impl(locale_ref locale) -> char;
template auto decimal_point_impl(locale_ref locale) -> wchar_t;
template void buffer<char>::append(const char* begin, const char* end);
template void vformat_to(buffer<char>& out, string_view format, basic_format_args<buffer_context<char>> args,
                         locale_ref locale);

}  // namespace detail
FMT_END_NAMESPACE
