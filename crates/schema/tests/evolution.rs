//! Which tables become tables of which rows, and what is told of the others.

use polychron_schema::{
    ColumnHistory, ColumnType, Evolution, EvolutionError, IndexDefinition, RowBuffer, TableDefinition, Value, build_row,
};

fn text(max: u32) -> ColumnType {
    ColumnType::String { max }
}

fn present() -> TableDefinition {
    TableDefinition::new("account")
        .with_column("branch", ColumnType::U16)
        .with_column("id", ColumnType::U32)
        .with_column("name", text(20))
        .with_nullable_column("note", text(20))
        .with_key([0, 1])
}

fn history(of: &[(Option<&str>, Option<Value>)]) -> Vec<ColumnHistory> {
    of.iter().map(|(was, default)| ColumnHistory { was: was.map(str::to_owned), default: default.clone() }).collect()
}

fn between(
    wanted: &TableDefinition,
    of: &[(Option<&str>, Option<Value>)],
) -> Result<Option<Evolution>, EvolutionError> {
    Evolution::between(&present(), wanted, &history(of))
}

fn told(wanted: &TableDefinition, of: &[(Option<&str>, Option<Value>)]) -> String {
    between(wanted, of).expect_err("it does not fit").to_string()
}

#[test]
fn rows_are_converted() {
    assert_eq!(between(&present(), &[]).unwrap(), None);
    let wanted = TableDefinition::new("account")
        .with_column("open", ColumnType::Bool)
        .with_nullable_column("owner", text(30))
        .with_column("branch", ColumnType::U16)
        .with_nullable_column("note", text(20))
        .with_column("number", ColumnType::U32)
        .with_nullable_column("limit", ColumnType::I64)
        .with_key([2, 4]);
    let of = [
        (None, Some(Value::Bool(true))),
        (Some("name"), None),
        (None, None),
        // A default of a column that is there is not looked at.
        (None, Some(Value::from("-"))),
        (Some("id"), None),
        (Some("credit"), Some(Value::Null)),
    ];
    let evolution = between(&wanted, &of).unwrap().unwrap();
    assert_eq!(evolution.difference(), "`open` is new");
    let (older, newer) = (present().layout().unwrap(), wanted.layout().unwrap());
    let (mut row, mut out) = (RowBuffer::new(), RowBuffer::new());
    build_row(&older, &[1_u16.into(), 7_u32.into(), "Ada".into(), Value::Null], &mut row).unwrap();
    evolution.convert((&older, row.as_row()), &newer, &mut out).unwrap();
    let expected = [true.into(), "Ada".into(), 1_u16.into(), Value::Null, 7_u32.into(), Value::Null];
    assert_eq!(out.as_row().values(&newer), expected);
    assert_eq!(evolution.index(&IndexDefinition::new("by_name", [2, 0])).columns, [1, 2]);
}

#[test]
fn what_does_not_fit_is_told_by_name() {
    let more = present().with_column("limit", ColumnType::I64);
    assert_eq!(told(&more, &[]), "account.limit is not there: the row's field needs a `default`, or what it `was`");
    let mut of = vec![(None, None); 5];
    of[4].1 = Some(Value::from("many"));
    assert_eq!(told(&more, &of), "the default of account.limit: column account.limit has the type i64, not a string");
    of[4] = (Some("name"), None);
    assert_eq!(told(&more, &of), "account.limit is string(20), and the row has i64");
    let mut renamed = present();
    renamed.columns[2].name = "owner".to_owned();
    assert!(told(&renamed, &[]).starts_with("account.owner is not there"));
    let fewer = TableDefinition { columns: present().columns[..3].to_vec(), ..present() };
    assert!(told(&fewer, &[]).starts_with("account.note is in the table and not in the row"));
    let mut of = vec![(None, None); 4];
    of[2] = (Some("note"), None);
    assert_eq!(
        told(&present().with_key([1, 0]), &of),
        "account.name is in the table, and so is `note`, which it was before"
    );
    let mut shorter = present();
    shorter.columns[2].column_type = text(10);
    assert_eq!(told(&shorter, &[]), "account.name is string(20), and the row has string(10)");
    let mut not_null = present();
    not_null.columns[3].nullable = false;
    assert_eq!(told(&not_null, &[]), "account.note is string(20) or NULL, and the row has string(20)");
    let turned = present().with_key([1, 0]);
    assert_eq!(told(&turned, &[]), "the primary key of account is (branch, id), and that of the row is (id, branch)");
    // A column cannot become two.
    let twice = present().with_column("other", ColumnType::U32);
    let of = vec![(None, None), (None, None), (None, None), (None, None), (Some("id"), None)];
    assert_eq!(told(&twice, &of), "account.id would become both `id` and `other`");
}

#[test]
fn fingerprints_tell_rows_apart() {
    let own = present().fingerprint();
    // It is stored: no version may change it.
    assert_eq!(own, 16_962_006_388_789_812_785);
    assert_eq!(present().with_name("other").with_index(IndexDefinition::new("by_name", [2])).fingerprint(), own);
    let mut others =
        vec![present().with_key([1, 0]), present().with_key([0]), present().with_column("x", ColumnType::U8)];
    for column in 0..4 {
        let mut other = present();
        other.columns[column].name.push('_');
        others.push(other);
        let mut other = present();
        other.columns[column].nullable ^= true;
        others.push(other);
    }
    let mut longer = present();
    longer.columns[2].column_type = text(21);
    others.push(longer);
    let mut fingerprints: Vec<u64> = others.iter().map(TableDefinition::fingerprint).collect();
    fingerprints.push(own);
    fingerprints.sort_unstable();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), others.len() + 1);
}
