// TypeORM: a schema that is synchronized twice, and its repositories.
require('reflect-metadata');
const { DataSource, EntitySchema } = require('typeorm');

const Author = new EntitySchema({
  name: 'Author',
  tableName: 'author',
  columns: {
    id: { type: Number, primary: true, generated: true },
    name: { type: 'varchar', length: 40, unique: true },
    born: { type: 'date', nullable: true },
  },
  relations: { books: { type: 'one-to-many', target: 'Book', inverseSide: 'author' } },
});
const Book = new EntitySchema({
  name: 'Book',
  tableName: 'book',
  columns: {
    id: { type: Number, primary: true, generated: true },
    title: { type: 'text' },
    price: { type: 'numeric', precision: 8, scale: 2, default: 1.5 },
  },
  relations: { author: { type: 'many-to-one', target: 'Author', joinColumn: true, onDelete: 'CASCADE', inverseSide: 'books' } },
  indices: [{ name: 'book_title', columns: ['title'] }],
});

async function main(url) {
  const source = new DataSource({ type: 'postgres', url, entities: [Author, Book], synchronize: true });
  await source.initialize();
  await source.synchronize();
  const authors = source.getRepository('Author');
  const books = source.getRepository('Book');
  const author = await authors.save({ name: 'one', born: '1900-01-01' });
  await books.save([{ title: 'a', author }, { title: 'b', author, price: 3 }]);
  console.log(JSON.stringify(await authors.find({ relations: { books: true }, order: { id: 'ASC' } })));
  console.log(await books.createQueryBuilder('b').select('count(*)', 'n').addSelect('sum(b.price)', 's').getRawOne());
  await source.transaction(async (manager) => manager.update('Book', { title: 'a' }, { price: 9 }));
  console.log(JSON.stringify(await books.findOneBy({ title: 'a' })));
  await authors.save({ name: 'one' }).catch((error) => console.log(error.code, error.table));
  await authors.delete({ name: 'one' });
  console.log(await books.count());
  await source.destroy();
}

main(process.argv[2]).catch((error) => { console.log('failed:', error.message, error.query); process.exit(1); });
