import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.GenericArrayType;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.lang.reflect.TypeVariable;
import java.lang.reflect.WildcardType;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Prints the classes of the first jar as lines of JSON, as Java's reflection has them; the other jars are those it needs.
 * A type is [class, dimensions, arguments, variable], whose variable is "?" for a wildcard and whose class is "*" for the bound of a
 * variable within another type.
 */
public class PrintClasses {
    static String text(String text) {
        StringBuilder found = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            boolean plain = each >= 32 && each < 127 && each != '"' && each != '\\';
            found.append(plain ? String.valueOf(each) : String.format("\\u%04x", (int) each));
        }
        return found.append('"').toString();
    }

    static <T> String list(Stream<T> each) {
        return each.map(String::valueOf).collect(Collectors.joining(",", "[", "]"));
    }

    static String type(String name, int dimensions, Stream<String> arguments, String variable) {
        return "[" + text(name) + "," + dimensions + "," + list(arguments) + "," + text(variable) + "]";
    }

    /** The class of a field bounds its variable. */
    static String type(Type type, Class<?> field) {
        int dimensions = 0;
        while (type instanceof GenericArrayType || type instanceof Class && ((Class<?>) type).isArray()) {
            boolean generic = type instanceof GenericArrayType;
            type = generic ? ((GenericArrayType) type).getGenericComponentType() : ((Class<?>) type).getComponentType();
            field = field == null ? null : field.getComponentType();
            dimensions++;
        }
        if (type instanceof WildcardType) {
            WildcardType wild = (WildcardType) type;
            Type bound = wild.getLowerBounds().length > 0 ? Object.class : wild.getUpperBounds()[0];
            String found = bound instanceof TypeVariable ? type("", 0, Stream.of(), "") : type(bound, null);
            return found.substring(0, found.length() - 3) + "\"?\"]";
        }
        if (type instanceof TypeVariable) {
            String bound = field == null ? "*" : field == Object.class ? "" : field.getName();
            return type(bound, dimensions, Stream.of(), ((TypeVariable<?>) type).getName());
        }
        if (type instanceof ParameterizedType) {
            ParameterizedType generic = (ParameterizedType) type;
            Stream<String> arguments = Arrays.stream(generic.getActualTypeArguments()).map(each -> type(each, null));
            return type(((Class<?>) generic.getRawType()).getName(), dimensions, arguments, "");
        }
        return type(((Class<?>) type).getName(), dimensions, Stream.of(), "");
    }

    static String constants(Class<?> of, ClassLoader loader) {
        if (!of.isEnum()) return "null";
        try {
            Object[] all = Class.forName(of.getName(), true, loader).getEnumConstants();
            return list(Arrays.stream(all).map(each -> text(((Enum<?>) each).name())));
        } catch (Throwable failed) { // its code needs classes that are not there
            return text("failed");
        }
    }

    static String described(Class<?> of, ClassLoader loader) {
        List<String> fields = new ArrayList<>();
        for (Field each : of.getDeclaredFields()) {
            if (Modifier.isStatic(each.getModifiers()) || Modifier.isTransient(each.getModifiers())) continue;
            String type = type(each.getGenericType(), each.getType());
            fields.add("[" + text(each.getName()) + "," + type + "," + each.isSynthetic() + "]");
        }
        boolean hasClassAbove = of.getSuperclass() != null && of.getSuperclass() != Object.class;
        Type above = of.getGenericSuperclass();
        Type[] given = above instanceof ParameterizedType ? ((ParameterizedType) above).getActualTypeArguments() : new Type[0];
        return "{\"name\":" + text(of.getName())
            + ",\"fields\":" + list(fields.stream())
            + ",\"superclass\":" + text(hasClassAbove ? of.getSuperclass().getName() : "")
            + ",\"arguments\":" + list(Arrays.stream(given).map(each -> type(each, null)))
            + ",\"interfaces\":" + list(Arrays.stream(of.getInterfaces()).map(each -> text(each.getName())))
            + ",\"parameters\":" + list(Arrays.stream(of.getTypeParameters()).map(each -> text(each.getName())))
            + ",\"final\":" + Modifier.isFinal(of.getModifiers())
            + ",\"abstract\":" + Modifier.isAbstract(of.getModifiers())
            + ",\"record\":" + of.isRecord()
            + ",\"constants\":" + constants(of, loader) + "}";
    }

    public static void main(String[] jars) throws Exception {
        List<URL> places = new ArrayList<>();
        for (String each : jars) places.add(new File(each).toURI().toURL());
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err); // that code of classes prints nothing between
        URLClassLoader loader = new URLClassLoader(places.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
        try (JarFile jar = new JarFile(jars[0])) {
            for (JarEntry each : Collections.list(jar.entries())) {
                String name = each.getName();
                if (!name.endsWith(".class") || name.startsWith("META-INF") || name.contains("-info")) continue;
                try {
                    String binary = name.substring(0, name.length() - 6).replace('/', '.');
                    out.println(described(Class.forName(binary, false, loader), loader));
                } catch (LinkageError | RuntimeException notForReflection) { // it needs others, or its signature is none
                    continue;
                }
            }
        }
        out.flush();
        System.exit(0); // code of classes may have begun threads
    }
}
