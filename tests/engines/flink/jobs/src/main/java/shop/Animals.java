package shop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** POJOs that inherit from each other, and a record. */
public final class Animals {
    private Animals() {}

    public enum Size { SMALL, LARGE }

    public static class Animal {
        public String name;
        public int legs;
        public Size size;

        public Animal() {}
    }

    /** Registered; hides no field of its parent. */
    public static class Dog extends Animal {
        public boolean barks;
        public List<String> tricks;

        public Dog() {}
    }

    /** Registered; a subclass of a subclass. */
    public static class Puppy extends Dog {
        public Animal mother;

        public Puppy() {}
    }

    /** Not registered. */
    public static class Cat extends Animal {
        public Map<String, Integer> mice;

        public Cat() {}
    }

    public record Visit(String place, long at, Size size, Integer guests) {}

    public static Animal animal(long id, boolean unregistered) {
        Animal made;
        switch ((int) (id % (unregistered ? 5 : 4))) {
            case 0:
                made = new Animal();
                break;
            case 1:
                made = dog(new Dog(), id);
                break;
            case 2:
                Puppy puppy = (Puppy) dog(new Puppy(), id);
                puppy.mother = id % 3 == 0 ? null : dog(new Dog(), id + 1);
                made = puppy;
                break;
            case 3:
                return null;
            default:
                Cat cat = new Cat();
                cat.mice = new HashMap<>();
                cat.mice.put("m" + id, (int) id);
                made = cat;
        }
        made.name = id % 6 == 1 ? null : "n" + id;
        made.legs = (int) (id % 5);
        made.size = Size.values()[(int) (id % 2)];
        return made;
    }

    private static Dog dog(Dog made, long id) {
        made.name = "dog" + id;
        made.legs = 4;
        made.barks = id % 2 == 0;
        made.tricks = id % 3 == 0 ? null : new ArrayList<>(List.of("sit", "t" + id));
        return made;
    }
}
