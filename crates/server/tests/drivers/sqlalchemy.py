"""SQLAlchemy 2 with psycopg: tables made, read back, and used by the ORM."""

import datetime
import decimal
import sys

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import postgresql


class Base(orm.DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(30), unique=True)
    born: orm.Mapped[datetime.date | None]
    books: orm.Mapped[list["Book"]] = orm.relationship(back_populates="author", cascade="all, delete-orphan")


class Book(Base):
    __tablename__ = "book"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    title: orm.Mapped[str] = orm.mapped_column(sa.Text)
    price: orm.Mapped[decimal.Decimal] = orm.mapped_column(sa.Numeric(8, 2), default=decimal.Decimal("1.50"))
    tags: orm.Mapped[list[str]] = orm.mapped_column(sa.ARRAY(sa.String), default=list)
    more: orm.Mapped[dict] = orm.mapped_column(postgresql.JSONB, default=dict)
    added: orm.Mapped[datetime.datetime] = orm.mapped_column(sa.DateTime(timezone=True), server_default=sa.func.now())
    author_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("author.id", ondelete="CASCADE"), index=True)
    author: orm.Mapped[Author] = orm.relationship(back_populates="books")
    __table_args__ = (sa.CheckConstraint("author_id > 0", name="author_is_positive"),)


engine = sa.create_engine(sys.argv[1].replace("postgresql://", "postgresql+psycopg://"))
Base.metadata.create_all(engine)
Base.metadata.create_all(engine)
with orm.Session(engine) as session:
    for number in range(3):
        author = Author(name=f"author {number}", born=datetime.date(1900 + number, 1, 1))
        author.books = [Book(title=f"book {number}.{i}", tags=["a", str(i)], more={"n": i}) for i in range(3)]
        session.add(author)
    session.commit()
with orm.Session(engine) as session:
    for author in session.scalars(sa.select(Author).options(orm.selectinload(Author.books)).order_by(Author.id)):
        print(author.name, author.born, [(book.title, book.price, book.tags, book.more) for book in author.books])
    query = sa.select(Author.name, sa.func.count(), sa.func.sum(Book.price)).join(Book).group_by(Author.name)
    print(session.execute(query.order_by(Author.name)).all())
    book = session.scalars(sa.select(Book).where(Book.title == "book 1.1").with_for_update()).one()
    book.price += 1
    session.delete(session.get(Author, 1))
    session.commit()
    print(session.scalar(sa.select(sa.func.count(Book.id))), session.get(Book, book.id).price)
    try:
        with session.begin_nested():
            session.add(Author(name="author 1"))
            session.flush()
    except sa.exc.IntegrityError as error:
        print(type(error.orig).__name__, error.orig.diag.constraint_name)
    session.commit()
inspector = sa.inspect(engine)
print(sorted(inspector.get_table_names()), inspector.get_schema_names())
for table in ("author", "book"):
    for column in inspector.get_columns(table):
        print(column["name"], column["type"], column["nullable"], column["default"])
    print(inspector.get_pk_constraint(table), inspector.get_foreign_keys(table))
    print(inspector.get_unique_constraints(table), inspector.get_check_constraints(table))
