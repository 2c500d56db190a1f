import java.sql.*;
import java.util.*;

/** pgjdbc: metadata, fetch size, batches, generated keys, prepared statements on the server. */
public class Jdbc {
    static void show(ResultSet rows, String... columns) throws SQLException {
        while (rows.next()) {
            StringBuilder line = new StringBuilder();
            for (String column : columns) line.append(rows.getString(column)).append('|');
            System.out.println(line);
        }
    }

    public static void main(String[] arguments) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        String url = arguments[0].replace("postgresql://postgres@", "jdbc:postgresql://");
        Properties properties = new Properties();
        properties.setProperty("user", "postgres");
        try (Connection db = DriverManager.getConnection(url, properties)) {
            Statement statement = db.createStatement();
            statement.execute("CREATE TABLE parent (id serial PRIMARY KEY, name varchar(20) NOT NULL UNIQUE, price numeric(8,2))");
            statement.execute("CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE, at timestamptz)");
            statement.execute("CREATE INDEX child_parent ON child (parent)");
            DatabaseMetaData data = db.getMetaData();
            show(data.getTables(null, "public", "%", new String[] {"TABLE"}), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE");
            show(data.getColumns(null, "public", "%", "%"), "TABLE_NAME", "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME",
                "COLUMN_SIZE", "DECIMAL_DIGITS", "NULLABLE", "COLUMN_DEF", "ORDINAL_POSITION", "IS_AUTOINCREMENT");
            show(data.getImportedKeys(null, "public", "child"), "PKTABLE_NAME", "PKCOLUMN_NAME", "FKCOLUMN_NAME", "DELETE_RULE", "FK_NAME");
            show(data.getSchemas(), "TABLE_SCHEM");
            show(data.getPrimaryKeys(null, "public", "child"), "TABLE_NAME", "COLUMN_NAME", "KEY_SEQ", "PK_NAME");
            show(data.getIndexInfo(null, "public", "parent", false, false), "INDEX_NAME", "NON_UNIQUE", "ORDINAL_POSITION", "COLUMN_NAME", "ASC_OR_DESC");
            show(data.getExportedKeys(null, "public", "parent"), "FKTABLE_NAME", "FKCOLUMN_NAME", "KEY_SEQ");
            show(data.getBestRowIdentifier(null, "public", "parent", 0, true), "COLUMN_NAME");
            System.out.println(data.getSQLKeywords().contains("analyse") + " " + data.getMaxColumnNameLength());
            try (PreparedStatement insert = db.prepareStatement("INSERT INTO parent (name, price) VALUES (?, ?)", Statement.RETURN_GENERATED_KEYS)) {
                for (int number = 0; number < 5; number++) {
                    insert.setString(1, "n" + number);
                    insert.setBigDecimal(2, new java.math.BigDecimal(number + ".25"));
                    insert.addBatch();
                }
                System.out.println(Arrays.toString(insert.executeBatch()));
                show(insert.getGeneratedKeys(), "id");
            }
            for (int number = 0; number < 8; number++) {
                try (PreparedStatement find = db.prepareStatement("SELECT id, price FROM parent WHERE name = ?")) {
                    find.setString(1, "n" + number);
                    show(find.executeQuery(), "id", "price");
                }
            }
            db.setAutoCommit(false);
            db.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            Statement many = db.createStatement();
            many.setFetchSize(3);
            ResultSet rows = many.executeQuery("SELECT g, g * 2 AS twice FROM generate_series(1, 10) AS g");
            ResultSetMetaData columns = rows.getMetaData();
            System.out.println(columns.getColumnTypeName(1) + " " + columns.getColumnLabel(2));
            show(rows, "g", "twice");
            Savepoint savepoint = db.setSavepoint("here");
            try {
                statement.execute("INSERT INTO parent (name) VALUES ('n1')");
            } catch (SQLException error) {
                org.postgresql.util.ServerErrorMessage message = ((org.postgresql.util.PSQLException) error).getServerErrorMessage();
                System.out.println(error.getSQLState() + " " + message.getTable() + " " + message.getConstraint());
            }
            db.rollback(savepoint);
            try (PreparedStatement insert = db.prepareStatement("INSERT INTO child VALUES (?, ?, ?)")) {
                insert.setInt(1, 1);
                insert.setInt(2, 2);
                insert.setTimestamp(3, new Timestamp(1709164800000L));
                System.out.println(insert.executeUpdate());
            }
            db.commit();
            rows = statement.executeQuery("SELECT id, at, parent FROM child");
            rows.next();
            System.out.println(rows.getTimestamp(2).getTime() + " " + rows.getInt(3));
            db.commit();
            db.setReadOnly(true);
            try {
                statement.execute("DELETE FROM child");
            } catch (SQLException error) {
                System.out.println(error.getSQLState());
            }
            db.rollback();
            db.setReadOnly(false);
            db.setAutoCommit(true);
            try {
                statement.executeQuery("SELECT a, nothing FROM (SELECT 1 AS a) x");
            } catch (SQLException error) {
                org.postgresql.util.ServerErrorMessage message = ((org.postgresql.util.PSQLException) error).getServerErrorMessage();
                System.out.println(error.getSQLState() + " " + message.getPosition());
            }
            System.out.println(db.isValid(5));
        }
    }
}
