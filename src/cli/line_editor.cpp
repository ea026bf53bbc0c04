#include "cli/line_editor.h"

#include <fmt/format.h>
#include <histedit.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <string_view>

#include "base/check.h"
#include "base/env.h"
#include "cli/cli.h"
#include "cli/line_history.h"

namespace weft::cli {
namespace {

constexpr int kHistory = 1000;
// Terminals put what is pasted between these while they are asked to, so that its line ends are no Enter.
constexpr const char* kMarkPastes = "\033[?2004h";
constexpr const char* kMarkNoPastes = "\033[?2004l";
constexpr const char* kPasteBegins = "\033[200~";
constexpr std::wstring_view kPasteEnds = L"\033[201~";

volatile std::sig_atomic_t size_changed = 0, stop_asked = 0;

// Listens for another size of the terminal and for Ctrl-Z while it lives; neither restarts what waits for input.
class TerminalSignals {
 public:
  TerminalSignals() {
    struct sigaction action {};
    action.sa_handler = [](int signal) { (signal == SIGWINCH ? size_changed : stop_asked) = 1; };
    sigaction(SIGWINCH, &action, &before_[0]);
    sigaction(SIGTSTP, &action, &before_[1]);
  }
  ~TerminalSignals() {
    sigaction(SIGWINCH, &before_[0], nullptr);
    sigaction(SIGTSTP, &before_[1], nullptr);
  }
  TerminalSignals(const TerminalSignals&) = delete;
  TerminalSignals& operator=(const TerminalSignals&) = delete;

 private:
  struct sigaction before_[2];
};

// As Ctrl-Z stops any program; goes on once the shell lets it.
void stop_here() {
  struct sigaction before {
  }, action{};
  action.sa_handler = SIG_DFL;
  sigaction(SIGTSTP, &action, &before);
  raise(SIGTSTP);
  sigaction(SIGTSTP, &before, nullptr);
}

}  // namespace

struct LineEditor::Impl {
  LineHistory file;
  FILE* screen = nullptr;
  EditLine* edit = nullptr;
  History* history = nullptr;
  std::string prompt;
  bool ctrl_c = false, ctrl_c_in_text = false;

  explicit Impl(const std::string& history_file) : file(history_file, kHistory) {}
  ~Impl() {
    if (edit != nullptr) el_end(edit);
    if (history != nullptr) history_end(history);
    if (screen != nullptr) std::fclose(screen);
  }

  static Impl& of(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<Impl*>(data);
  }
  static char* prompt_of(EditLine* edit) { return of(edit).prompt.data(); }

  // Clears the rows of what is typed, from wherever in it the cursor is: terminals fold long lines anew for another
  // width. libedit would begin where the cursor is, and leave what stood there.
  void clear_rows() {
    winsize size{};
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    const int columns = known ? size.ws_col : 80;
    int row = 0, column = static_cast<int>(prompt.size());
    const LineInfoW* line = el_wline(edit);
    for (const wchar_t* at = line->buffer; at != line->cursor; ++at) {
      const int width = *at == L'\n' ? columns : std::max(wcwidth(*at), 0);
      if (column + width > columns) ++row, column = 0;
      if (*at != L'\n') column += width;
    }
    std::fputs(
        row + column / columns > 0 ? fmt::format("\r\033[{}A\033[J", row + column / columns).c_str() : "\r\033[J",
        screen);
  }

  // Does what signals ask for. Nothing here or in what libedit calls may throw: there are its frames above.
  void heed_signals() {
    if (stop_asked != 0) {
      stop_asked = 0;
      el_set(edit, EL_PREP_TERM, 0);
      stop_here();
      el_set(edit, EL_PREP_TERM, 1);
      size_changed = 0;
      el_resize(edit);
      el_set(edit, EL_REFRESH);  // the shell has written meanwhile, and left the cursor on a row of its own
    }
    if (size_changed != 0) {
      size_changed = 0;
      clear_rows();
      el_resize(edit);
      el_set(edit, EL_REFRESH);
    }
  }

  // The next character of standard input: 1, 0 at its end, -1 at Ctrl-C.
  static int read_character(EditLine* edit, wchar_t* character) {
    Impl& self = of(edit);
    std::mbstate_t state{};
    for (;;) {
      try {
        self.heed_signals();
        if (!wait_for_input_or_signal(STDIN_FILENO)) continue;
      } catch (const Interrupted&) {
        const LineInfoW* line = el_wline(edit);
        self.ctrl_c = true;
        self.ctrl_c_in_text = line->lastchar != line->buffer;
        return -1;
      }
      char byte = 0;
      const ssize_t count = read(STDIN_FILENO, &byte, 1);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return 0;
      const size_t length = std::mbrtowc(character, &byte, 1, &state);
      if (length == static_cast<size_t>(-1)) state = {};  // no character begins like that
      if (length <= 1) return 1;
    }
  }

  static unsigned char paste(EditLine* edit, int) {
    std::wstring text;
    for (wchar_t character = 0; !text.ends_with(kPasteEnds);) {
      if (el_wgetc(edit, &character) != 1) return CC_EOF;
      text += character == L'\r' ? L'\n' : character;
    }
    text.resize(text.size() - kPasteEnds.size());
    while (text.ends_with(L'\n')) text.pop_back();
    return text.empty() || el_winsertstr(edit, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }
  static unsigned char break_line(EditLine* edit, int) {
    return el_winsertstr(edit, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
  }

  void open();
  void remember(const std::string& line) {
    HistEvent event;
    ::history(history, &event, H_ENTER, line.c_str());
  }
};

void LineEditor::Impl::open() {
  // libedit reads and measures characters as the locale has them.
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  screen = fdopen(dup(STDERR_FILENO), "w");
  check(screen != nullptr, ErrorCode::io_error, "standard error: {}", std::strerror(errno));
  edit = el_init("weft", stdin, screen, screen);
  history = history_init();
  check(edit != nullptr && history != nullptr, ErrorCode::out_of_memory, "there is no memory for the chat's lines");
  HistEvent event;
  ::history(history, &event, H_SETSIZE, kHistory);
  ::history(history, &event, H_SETUNIQUE, 1);
  el_set(edit, EL_CLIENTDATA, this);
  el_set(edit, EL_PROMPT, &prompt_of);
  el_set(edit, EL_HIST, ::history, history);
  el_set(edit, EL_EDITOR, "emacs");
  el_set(edit, EL_GETCFN, &read_character);
  el_set(edit, EL_ADDFN, "weft-paste", "Inserts what is pasted", &paste);
  el_set(edit, EL_ADDFN, "weft-break-line", "Breaks the line", &break_line);
  constexpr const char* kKeys[][2] = {
      {kPasteBegins, "weft-paste"},       {"\033\r", "weft-break-line"}, {"\033\n", "weft-break-line"},
      {"\033[3~", "ed-delete-next-char"}, {"\033[H", "ed-move-to-beg"},  {"\033[F", "ed-move-to-end"},
      {"\033[1~", "ed-move-to-beg"},      {"\033[4~", "ed-move-to-end"}, {"\033[1;5C", "em-next-word"},
      {"\033[1;5D", "ed-prev-word"},      {"^R", "em-inc-search-prev"}};
  for (const auto& [keys, function] : kKeys) el_set(edit, EL_BIND, keys, function, nullptr);
  el_source(edit, nullptr);  // the user's own keys
  for (const std::string& line : file.read()) remember(line);
}

bool LineEditor::usable() {
  return isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1 && env::terminal_moves_cursor();
}

LineEditor::LineEditor(const std::string& history_file) : impl_(std::make_unique<Impl>(history_file)) { impl_->open(); }
LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::next(const std::string& prompt) {
  impl_->prompt = prompt;
  const TerminalSignals signals;
  const struct Pastes {
    FILE* screen;
    explicit Pastes(FILE* to) : screen(to) { std::fputs(kMarkPastes, screen), std::fflush(screen); }
    ~Pastes() { std::fputs(kMarkNoPastes, screen), std::fflush(screen); }
  } pastes(impl_->screen);
  el_resize(impl_->edit);  // it may have changed since
  for (;;) {
    int count = 0;
    el_set(impl_->edit, EL_PREP_TERM, 1);  // before the prompt shows: what is typed at once is edited, too
    const char* text = el_gets(impl_->edit, &count);
    if (impl_->ctrl_c) {
      impl_->ctrl_c = false;
      std::fputs("^C\n", impl_->screen);
      if (!impl_->ctrl_c_in_text) throw Interrupted();
      listen_for_interrupt();
      continue;
    }
    if (text == nullptr || count <= 0) return std::nullopt;
    std::string line(text, static_cast<size_t>(count));
    if (line.ends_with('\n')) line.pop_back();
    if (line.find_first_not_of(" \n\t") != line.npos) {
      impl_->remember(line);
      impl_->file.add(line);
    }
    return line;
  }
}

}  // namespace weft::cli
