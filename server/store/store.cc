#include "server/store/store.h"

#include <sqlite3.h>

#include "common/base/status.h"

namespace tp::server {
namespace {

constexpr int kApplicationId = 0x74706331;  // "tpc1"
constexpr int kSchemaVersion = 1;
constexpr char kSchema[] =
    "CREATE TABLE leadership (id INTEGER PRIMARY KEY CHECK (id = 1), term INTEGER NOT NULL);"
    "INSERT INTO leadership (id, term) VALUES (1, 0);"
    "CREATE TABLE submissions (position INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, blob BLOB NOT "
    "NULL);";

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
struct EndStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, EndStatement>;

absl::StatusCode CodeOf(int result) {
  switch (result & 0xff) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return absl::StatusCode::kDataLoss;
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      return absl::StatusCode::kPermissionDenied;
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

class SqliteStore : public Store {
 public:
  SqliteStore(Database database, std::string path) : database_(std::move(database)), path_(std::move(path)) {}

  absl::Status Initialize() {
    // One coordinator owns the file: the lock is held until it is closed.
    TP_RETURN_IF_ERROR(Execute("PRAGMA locking_mode = EXCLUSIVE"));
    TP_ASSIGN_OR_RETURN(const int64_t application, Number("PRAGMA application_id"));
    TP_ASSIGN_OR_RETURN(const int64_t version, Number("PRAGMA user_version"));
    TP_ASSIGN_OR_RETURN(const int64_t tables, Number("SELECT count(*) FROM sqlite_master"));
    const bool empty = application == 0 && version == 0 && tables == 0;
    if (!empty && application != kApplicationId) {
      return absl::DataLossError(absl::StrCat(path_, ": is a database, but not one of a coordinator"));
    }
    if (version > kSchemaVersion) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, ": has schema version ", version, ", this program knows up to ", kSchemaVersion));
    }
    TP_RETURN_IF_ERROR(Execute("PRAGMA journal_mode = WAL"));
    TP_RETURN_IF_ERROR(Execute("PRAGMA synchronous = FULL"));
    if (empty) {
      return Execute(absl::StrCat("BEGIN IMMEDIATE;", kSchema, "PRAGMA application_id = ", kApplicationId,
                                  ";PRAGMA user_version = ", kSchemaVersion, ";COMMIT"));
    }
    TP_ASSIGN_OR_RETURN(const std::string check, Text("PRAGMA quick_check(1)"));
    if (check != "ok") return absl::DataLossError(absl::StrCat(path_, ": is damaged: ", check));
    TP_ASSIGN_OR_RETURN(const int64_t rows, Number("SELECT count(*) FROM leadership WHERE id = 1"));
    if (rows != 1) return absl::DataLossError(absl::StrCat(path_, ": has no term"));
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> NextTerm() override {
    TP_ASSIGN_OR_RETURN(const int64_t term,
                        Number("UPDATE leadership SET term = term + 1 WHERE id = 1 RETURNING term"));
    return static_cast<uint64_t>(term);
  }

  absl::Status Put(const std::string& name, const std::string& blob) override {
    TP_ASSIGN_OR_RETURN(Statement statement, Prepare("INSERT INTO submissions (name, blob) VALUES (?1, ?2) "
                                                     "ON CONFLICT (name) DO UPDATE SET blob = excluded.blob"));
    sqlite3_bind_text(statement.get(), 1, name.data(), static_cast<int>(name.size()), SQLITE_TRANSIENT);
    sqlite3_bind_blob64(statement.get(), 2, blob.data(), blob.size(), SQLITE_STATIC);
    return Finish(statement.get());
  }

  absl::Status Erase(const std::string& name) override {
    TP_ASSIGN_OR_RETURN(Statement statement, Prepare("DELETE FROM submissions WHERE name = ?1"));
    sqlite3_bind_text(statement.get(), 1, name.data(), static_cast<int>(name.size()), SQLITE_TRANSIENT);
    return Finish(statement.get());
  }

  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> All() override {
    TP_ASSIGN_OR_RETURN(Statement statement, Prepare("SELECT name, blob FROM submissions ORDER BY position"));
    std::vector<std::pair<std::string, std::string>> all;
    int result = sqlite3_step(statement.get());
    for (; result == SQLITE_ROW; result = sqlite3_step(statement.get())) {
      all.emplace_back(Column(statement.get(), 0), Column(statement.get(), 1));
    }
    if (result != SQLITE_DONE) return Error(result);
    return all;
  }

 private:
  static std::string Column(sqlite3_stmt* statement, int column) {
    const void* data = sqlite3_column_blob(statement, column);
    const int size = sqlite3_column_bytes(statement, column);
    return size == 0 ? std::string() : std::string(static_cast<const char*>(data), static_cast<size_t>(size));
  }
  absl::Status Error(int result) const {
    const absl::StatusCode code = CodeOf(result);
    std::string text = absl::StrCat(path_, ": ", sqlite3_errmsg(database_.get()));
    if (code == absl::StatusCode::kFailedPrecondition) absl::StrAppend(&text, " (another coordinator uses it)");
    return absl::Status(code, text);
  }
  absl::Status Execute(const std::string& text) {
    const int result = sqlite3_exec(database_.get(), text.c_str(), nullptr, nullptr, nullptr);
    return result == SQLITE_OK ? absl::OkStatus() : Error(result);
  }
  absl::StatusOr<Statement> Prepare(const char* text) {
    sqlite3_stmt* statement = nullptr;
    const int result = sqlite3_prepare_v2(database_.get(), text, -1, &statement, nullptr);
    if (result != SQLITE_OK) return Error(result);
    return Statement(statement);
  }
  // Runs a statement to its end; in WAL mode with synchronous = FULL its commit is on the disk then.
  absl::Status Finish(sqlite3_stmt* statement) {
    int result = sqlite3_step(statement);
    while (result == SQLITE_ROW) result = sqlite3_step(statement);
    return result == SQLITE_DONE ? absl::OkStatus() : Error(result);
  }
  absl::StatusOr<std::string> Text(const char* text) {
    TP_ASSIGN_OR_RETURN(Statement statement, Prepare(text));
    const int result = sqlite3_step(statement.get());
    if (result != SQLITE_ROW) return result == SQLITE_DONE ? absl::DataLossError(path_ + ": no row") : Error(result);
    std::string value = Column(statement.get(), 0);
    TP_RETURN_IF_ERROR(Finish(statement.get()));
    return value;
  }
  absl::StatusOr<int64_t> Number(const char* text) {
    TP_ASSIGN_OR_RETURN(Statement statement, Prepare(text));
    const int result = sqlite3_step(statement.get());
    if (result != SQLITE_ROW) return result == SQLITE_DONE ? absl::DataLossError(path_ + ": no row") : Error(result);
    const int64_t value = sqlite3_column_int64(statement.get(), 0);
    TP_RETURN_IF_ERROR(Finish(statement.get()));
    return value;
  }

  Database database_;
  std::string path_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& path) {
  sqlite3* raw = nullptr;
  const int result = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  Database database(raw);
  if (result != SQLITE_OK) {
    return absl::Status(CodeOf(result), absl::StrCat(path, ": ", raw == nullptr ? "no memory" : sqlite3_errmsg(raw)));
  }
  sqlite3_extended_result_codes(raw, 1);
  auto store = std::make_unique<SqliteStore>(std::move(database), path);
  TP_RETURN_IF_ERROR(store->Initialize());
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace tp::server
